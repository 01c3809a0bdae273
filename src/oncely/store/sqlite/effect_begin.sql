-- Write down the intent, under the fence: whether the job is still held, whether the intent is new,
-- and what is there.
insert into oncely_effect (job_id, name, verb, state, fingerprint, arguments, epoch, begun_at)
select :id, :name, :verb, 'begun', :fingerprint, :arguments, :epoch, c.now
from oncely_clock c where exists (
    select 1 from oncely_lease l cross join json_each(l.ids) m
    where l.epoch = :epoch and l.nonce = :nonce and m.value = :id
)
on conflict do nothing;

select exists (
    select 1 from oncely_lease l cross join json_each(l.ids) m
    where l.epoch = :epoch and l.nonce = :nonce and m.value = :id
), changes() > 0, e.state, e.verb, e.fingerprint, e.epoch,
    ((select now from oncely_clock) - e.begun_at) / 1e6, e.source, e.result
from (select 1) one left join oncely_effect e on e.job_id = :id and e.name = :name
