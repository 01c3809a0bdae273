-- It happened. Evidence is not fenced: who comes too late to settle still knows this. What is there
-- already stays. A job that is gone has no ledger any more.
insert into oncely_effect (
    job_id, name, verb, state, fingerprint, arguments, epoch, begun_at, ended_at, source, result
)
select j.id, :name, :verb, 'done', :fingerprint, :arguments, :epoch, c.now, c.now, :source, :result
from oncely_clock c cross join oncely_job j where j.id = :id
on conflict (job_id, name) do update
set state = 'done', ended_at = excluded.ended_at, source = excluded.source, result = excluded.result
where state <> 'done';

insert into oncely_tally (name, kind, label, n)
select 'effects', j.kind, :source, 1 from oncely_job j where j.id = :id and changes() > 0
