-- The newest drills after which somebody should look at the handler.
select d.job_id, j.kind, d.execution_id, d.worker, d.outcome, d.found, d.at
from oncely_drill d cross join oncely_job j on j.id = d.job_id
where d.outcome in ('repeated', 'diverged', 'failed')
order by d.at desc limit :limit
