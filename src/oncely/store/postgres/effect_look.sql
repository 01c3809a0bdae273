select exists (
    select from oncely.lease l
    where l.epoch = :epoch and l.nonce = :nonce and cast(:id as uuid) = any (l.ids)
), false, e.state, e.verb, e.fingerprint, e.epoch,
    extract(epoch from clock_timestamp() - e.begun_at)::float8, e.source, e.result::text
from (select) one
left join oncely.effect e on e.job_id = cast(:id as uuid) and e.name = :name
