-- For each whether its job is still held, and what is known of it. The leases are opened once for
-- all: to search one for each of its jobs costs more than the rest.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, name text, epoch bigint, nonce bigint
    )
),
member as materialized (
    select l.epoch, l.nonce, unnest(l.ids) as id from oncely.lease l
    where l.epoch in (select i.epoch from input i)
)
select i.id::text, i.name, i.epoch, i.nonce, m.id is not null, e.state, e.verb, e.fingerprint, e.epoch,
    date_part('epoch', clock_timestamp() - e.begun_at), e.source, e.result::text
from input i
left join member m on m.id = i.id and m.epoch = i.epoch and m.nonce = i.nonce
left join lateral (
    select * from oncely.effect e where e.job_id = i.id and e.name = i.name limit 1
) e on true
