-- They happened. Evidence is not fenced: who comes too late to settle still knows this. What is
-- there already stays. A job that is gone has no ledger any more.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, name text, epoch bigint, verb text, fingerprint text, arguments text, source text,
        result text
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
    returning e.job_id, e.source
)
insert into oncely.tally (name, kind, label, n)
select 'effects', j.kind, r.source, count(*)
from recorded r
cross join lateral (select k.kind from oncely.job k where k.id = r.job_id offset 0) j
group by j.kind, r.source
