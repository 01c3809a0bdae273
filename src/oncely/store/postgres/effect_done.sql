-- It happened. Evidence is not fenced: who comes too late to settle still knows this. What is there
-- already stays. A job that is gone has no ledger any more.
with recorded as (
    insert into oncely.effect as e (
        job_id, name, verb, state, fingerprint, arguments, epoch, begun_at, ended_at, source, result
    )
    select j.id, :name, :verb, 'done', :fingerprint, cast(:arguments as text), :epoch,
        c.now, c.now, :source, cast(cast(:result as text) as json)
    from oncely.job j, (select clock_timestamp() as now) c
    where j.id = cast(:id as uuid)
    on conflict (job_id, name) do update
    set state = 'done', ended_at = excluded.ended_at, source = excluded.source,
        result = excluded.result
    where e.state <> 'done'
    returning e.source
)
insert into oncely.tally (name, kind, label, n)
select 'effects', j.kind, r.source, 1
from recorded r, oncely.job j where j.id = cast(:id as uuid)
