-- What a drill found, with its job, and counted once. A job that is gone has no story any more.
insert into oncely_tally (name, kind, label, n)
select c.name, j.kind, c.label, c.n
from oncely_job j cross join (
    select 'drills' as name, :outcome as label, 1 as n
    union all select 'drill_effects', 'recognised', :recognised
    union all select 'drill_effects', 'repeated', :repeated
) c
where j.id = :id and c.n > 0 and not exists (
    select 1 from oncely_drill d where d.job_id = j.id and d.execution_id = :execution_id
);

insert into oncely_drill (job_id, execution_id, at, epoch, worker, outcome, found)
select j.id, :execution_id, c.now, :epoch, :worker, :outcome, :found
from oncely_clock c cross join oncely_job j where j.id = :id
on conflict do nothing
