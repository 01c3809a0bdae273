-- For each whether its job is still held, and what is known of it.
select i.id::text, i.name, i.epoch, exists (
    select from oncely.lease l
    where l.epoch = i.epoch and l.nonce = i.nonce and i.id = any (l.ids)
), false, e.state, e.verb, e.fingerprint, e.epoch,
    extract(epoch from clock_timestamp() - e.begun_at)::float8, e.source, e.result::text
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    id uuid, name text, epoch bigint, nonce bigint
)
left join lateral (
    select * from oncely.effect e where e.job_id = i.id and e.name = i.name limit 1
) e on true
