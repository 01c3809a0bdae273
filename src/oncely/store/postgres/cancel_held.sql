-- Give up a job that is held. What is in doubt of it stays so in the ledger, and can still be
-- answered. The row in outcome is the hold: who takes it first, go_on or this, decides.
with held as materialized (
    select o.* from oncely.outcome o
    where o.job_id = cast(:id as uuid) and o.state = 'in_doubt'
    for update
),
kept as (
    insert into oncely.execution (
        job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, error
    )
    select job_id, epoch, 'in_doubt', attempt, worker, started_at, ended_at, ended_at, attempt - 1,
        error
    from held
),
ended as (
    update oncely.outcome o
    set state = 'cancelled', epoch = null, worker = null, started_at = null, error = null,
        ended_at = clock_timestamp()
    from held h where o.job_id = h.job_id
    returning o.job_id
),
freed as (
    delete from oncely.unique_key u using ended e, oncely.job j
    where j.id = e.job_id and u.kind = j.kind and u.key = j.unique_key and u.job_id = j.id
),
told as (
    select count(oncely.tell_waiters(e.ids)) as n from (select array_agg(job_id) as ids from ended) e
)
select job_id::text from ended where (select n from told) >= 0
