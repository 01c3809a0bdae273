insert into oncely_execution (
    job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, error
)
select job_id, epoch, 'failed', attempt, worker, started_at, ended_at,
    (select now from oncely_clock), 0, error
from oncely_outcome where job_id = :id and state = 'failed';

insert into oncely_ready (queue, priority, lane, due_at, id, attempts)
select j.queue, j.priority, case when j.group_key is null then '' else 'later' end, s.due_at, j.id, 0
from oncely_outcome o
join oncely_job j on j.id = o.job_id
join oncely_standing s on s.job_id = j.id
where o.job_id = :id and o.state = 'failed';

delete from oncely_outcome where job_id = :id and state = 'failed'
returning job_id
