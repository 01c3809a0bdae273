-- A job that was held goes back in line once nothing of it is in doubt. Being held burned no
-- attempt.
insert into oncely_execution (
    job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, error
)
select o.job_id, o.epoch, 'in_doubt', o.attempt, o.worker, o.started_at, o.ended_at,
    (select now from oncely_clock), o.attempt - 1, o.error
from oncely_outcome o
where o.job_id = :id and o.state = 'in_doubt' and not exists (
    select 1 from oncely_effect e where e.job_id = o.job_id and e.state = 'in_doubt'
);

insert into oncely_ready (queue, priority, lane, due_at, id, attempts)
select j.queue, j.priority, case when j.group_key is null then '' else 'later' end, s.due_at, j.id,
    s.attempts
from oncely_outcome o
join oncely_job j on j.id = o.job_id
join oncely_standing s on s.job_id = j.id
where o.job_id = :id and o.state = 'in_doubt' and not exists (
    select 1 from oncely_effect e where e.job_id = o.job_id and e.state = 'in_doubt'
);

delete from oncely_outcome
where job_id = :id and state = 'in_doubt' and not exists (
    select 1 from oncely_effect e where e.job_id = oncely_outcome.job_id and e.state = 'in_doubt'
)
returning job_id
