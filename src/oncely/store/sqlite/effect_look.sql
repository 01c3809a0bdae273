select exists (
    select 1 from oncely_lease l cross join json_each(l.ids) m
    where l.epoch = :epoch and l.nonce = :nonce and m.value = :id
), false, e.state, e.verb, e.fingerprint, e.epoch,
    ((select now from oncely_clock) - e.begun_at) / 1e6, e.source, e.result
from (select 1) one left join oncely_effect e on e.job_id = :id and e.name = :name
