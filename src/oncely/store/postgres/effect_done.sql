-- They happened. Evidence is not fenced: who comes too late to settle still knows this. What is
-- there already stays. A job that is gone has no ledger any more. The answer is for each whether its
-- job is still held, and what is known of it.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, name text, epoch bigint, nonce bigint, verb text, fingerprint text, arguments text,
        source text, result text
    )
),
recorded as (
    insert into oncely.effect as e (
        job_id, name, verb, state, fingerprint, arguments, epoch, begun_at, ended_at, source, result
    )
    select distinct on (i.id, i.name) j.id, i.name, i.verb, 'done', i.fingerprint, i.arguments,
        i.epoch, c.now, c.now, i.source, i.result::json
    from input i cross join (select clock_timestamp() as now) c
    -- One by one, here and below, whatever was the size of the table when this was planned.
    cross join lateral (select k.id from oncely.job k where k.id = i.id offset 0) j
    order by i.id, i.name
    on conflict (job_id, name) do update
    set state = 'done', ended_at = excluded.ended_at, source = excluded.source,
        result = excluded.result
    where e.state <> 'done'
    returning e.job_id, e.name, e.state, e.verb, e.fingerprint, e.epoch, e.begun_at, e.source,
        e.result
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'effects', j.kind, r.source, count(*)
    from recorded r
    cross join lateral (select k.kind from oncely.job k where k.id = r.job_id offset 0) j
    group by j.kind, r.source
),
member as materialized (
    select l.epoch, l.nonce, unnest(l.ids) as id from oncely.lease l
    where l.epoch in (select i.epoch from input i)
)
select i.id::text, i.name, i.epoch, m.id is not null, false,
    coalesce(r.state, e.state), coalesce(r.verb, e.verb), coalesce(r.fingerprint, e.fingerprint),
    coalesce(r.epoch, e.epoch),
    extract(epoch from clock_timestamp() - coalesce(r.begun_at, e.begun_at))::float8,
    coalesce(r.source, e.source), case when r.job_id is null then e.result else r.result end::text
from input i
left join recorded r on r.job_id = i.id and r.name = i.name
left join lateral (
    select * from oncely.effect k where k.job_id = i.id and k.name = i.name offset 0
) e on true
left join member m on m.id = i.id and m.epoch = i.epoch and m.nonce = i.nonce
