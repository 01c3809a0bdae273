-- It happened. Evidence is not fenced: who comes too late to settle still knows this. What is there
-- already stays.
insert into oncely.effect as e (
    job_id, name, verb, state, fingerprint, arguments, epoch, begun_at, ended_at, source, result
)
select cast(:id as uuid), :name, :verb, 'done', :fingerprint, cast(:arguments as text), :epoch,
    c.now, c.now, :source, cast(cast(:result as text) as json)
from (select clock_timestamp() as now) c
on conflict (job_id, name) do update
set state = 'done', ended_at = excluded.ended_at, source = excluded.source, result = excluded.result
where e.state <> 'done'
