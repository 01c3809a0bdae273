-- Write down the intent, under the fence: whether the job is still held, whether the intent is new,
-- and what was there before.
with held as materialized (
    select l.epoch from oncely.lease l
    where l.epoch = :epoch and l.nonce = :nonce and cast(:id as uuid) = any (l.ids)
    for share
),
begun as (
    insert into oncely.effect (job_id, name, verb, state, fingerprint, arguments, epoch, begun_at)
    select cast(:id as uuid), :name, :verb, 'begun', :fingerprint, cast(:arguments as text), h.epoch,
        clock_timestamp()
    from held h
    on conflict do nothing
    returning name
)
select exists (select from held), exists (select from begun), e.state, e.verb, e.fingerprint, e.epoch,
    extract(epoch from clock_timestamp() - e.begun_at)::float8, e.source, e.result::text
from (select) one
left join oncely.effect e on e.job_id = cast(:id as uuid) and e.name = :name
