-- A job that was held goes back in line once nothing of it is in doubt. Being held burned no
-- attempt.
with over as (
    delete from oncely.outcome o
    where o.job_id = cast(:id as uuid) and o.state = 'in_doubt' and not exists (
        select from oncely.effect e where e.job_id = o.job_id and e.state = 'in_doubt'
    )
    returning *
),
kept as (
    insert into oncely.execution (
        job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, error
    )
    select job_id, epoch, 'in_doubt', attempt, worker, started_at, ended_at, clock_timestamp(),
        attempt - 1, error
    from over
    returning job_id, due_at, attempts
),
waiting as (
    insert into oncely.ready (queue, priority, lane, due_at, id, attempts)
    select j.queue, j.priority, case when j.group_key is null then '' else 'later' end, k.due_at,
        j.id, k.attempts
    from kept k join oncely.job j on j.id = k.job_id
    returning queue
)
select k.job_id::text from kept k
where (select count(oncely.wake(w.queue)) from waiting w) >= 0
