-- The newest drills after which somebody should look at the handler.
select d.job_id::text, j.kind, d.execution_id, d.worker, d.outcome, d.found::text,
    (extract(epoch from d.at) * 1000000)::bigint
from oncely.drill d
cross join lateral (select x.kind from oncely.job x where x.id = d.job_id offset 0) j
where d.outcome in ('repeated', 'diverged', 'failed')
order by d.at desc limit :limit
