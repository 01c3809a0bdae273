-- Write down intents, each under its fence. For each that was not: whether the job is still held,
-- and what was there before. One that was written is in the answer if earlier executions of its job
-- have other effects on record, with their names. The leases are locked first, in order, against
-- everything but their renewal.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, name text, epoch bigint, nonce bigint, verb text, fingerprint text, arguments text
    )
),
lock as materialized (
    select l.epoch, l.nonce, l.ids from oncely.lease l
    where l.epoch in (select i.epoch from input i)
    order by l.epoch
    for key share
),
member as materialized (select l.epoch, l.nonce, unnest(l.ids) as id from lock l),
held as materialized (
    select i.* from input i
    join member m on m.id = i.id and m.epoch = i.epoch and m.nonce = i.nonce
),
begun as (
    insert into oncely.effect (job_id, name, verb, state, fingerprint, arguments, epoch, begun_at)
    select h.id, h.name, h.verb, 'begun', h.fingerprint, h.arguments, h.epoch, c.now
    from held h cross join (select clock_timestamp() as now) c
    order by h.id, h.name
    on conflict do nothing
    returning job_id, name
)
select i.id::text, i.name, i.epoch, i.nonce, h.id is not null, e.state, e.verb, e.fingerprint, e.epoch,
    date_part('epoch', clock_timestamp() - e.begun_at), e.source, e.result::text,
    case when b.job_id is not null or (e.state = 'begun' and e.epoch = i.epoch) then o.names end
from input i
left join held h on h.id = i.id and h.name = i.name and h.epoch = i.epoch and h.nonce = i.nonce
left join begun b on b.job_id = i.id and b.name = i.name
left join lateral (
    select * from oncely.effect e where e.job_id = i.id and e.name = i.name limit 1
) e on true
left join lateral (
    select json_agg(o.name order by o.name)::text as names
    from oncely.effect o where o.job_id = i.id and o.name <> i.name and o.epoch <> i.epoch
) o on true
where h.id is null or b.job_id is null or o.names is not null
