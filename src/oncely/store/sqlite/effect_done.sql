-- It happened. Evidence is not fenced: who comes too late to settle still knows this. What is there
-- already stays.
insert into oncely_effect (
    job_id, name, verb, state, fingerprint, arguments, epoch, begun_at, ended_at, source, result
)
select :id, :name, :verb, 'done', :fingerprint, :arguments, :epoch, c.now, c.now, :source, :result
from oncely_clock c where true
on conflict (job_id, name) do update
set state = 'done', ended_at = excluded.ended_at, source = excluded.source, result = excluded.result
where state <> 'done'
