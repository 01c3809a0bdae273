with failed as (
    delete from oncely.outcome where job_id = cast(:id as uuid) and state = 'failed'
    returning *
),
kept as (
    insert into oncely.execution (
        job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, error
    )
    select job_id, epoch, 'failed', attempt, worker, started_at, ended_at, clock_timestamp(), 0,
        error
    from failed
    returning job_id, due_at
),
waiting as (
    insert into oncely.ready (queue, priority, due_at, id, attempts)
    select j.queue, j.priority, k.due_at, j.id, 0
    from kept k join oncely.job j on j.id = k.job_id
)
select job_id::text from kept
