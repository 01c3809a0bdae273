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
    insert into oncely.ready (queue, priority, lane, due_at, id, attempts)
    select j.queue, j.priority, case when j.group_key is null then '' else 'later' end, k.due_at, j.id, 0
    from kept k join oncely.job j on j.id = k.job_id
    returning queue
),
woken as (select count(oncely.wake(w.queue)) as queues from waiting w)
select job_id::text from kept where (select queues from woken) >= 0
