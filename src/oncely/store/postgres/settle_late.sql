-- The lease ran out and the job was put back in line, but nobody has claimed it since: then its
-- end is accepted after all. Who deletes the row in ready, a claim or this, decides.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, epoch bigint, nonce bigint, state text, attempt smallint, result text, error text
    ) where d.state is not null
),
mine as materialized (
    select i.*, e.worker, e.started_at, e.due_at
    from input i
    join oncely.execution e on e.job_id = i.id and e.epoch = i.epoch and e.nonce = i.nonce
    where e.outcome in ('crashed', 'retried')
        and e.epoch = (select max(x.epoch) from oncely.execution x where x.job_id = i.id)
),
gone as (
    delete from oncely.ready r using mine m, oncely.job j
    where j.id = m.id
        and r.queue = j.queue and r.priority = j.priority
        and r.lane = any (array['', 'later', 'g:' || j.group_key])
        and r.due_at = m.due_at and r.id = m.id
    returning r.id
),
ended as (
    insert into oncely.outcome (
        job_id, state, epoch, attempt, worker, started_at, ended_at, error, result
    )
    select m.id, m.state, m.epoch, m.attempt, m.worker, m.started_at, clock_timestamp(),
        m.error::json, m.result::json
    from mine m join gone g on g.id = m.id
    returning job_id
),
forgotten as (
    delete from oncely.execution e using mine m, gone g
    where g.id = m.id and e.job_id = m.id and e.epoch = m.epoch
),
freed as (
    delete from oncely.unique_key u using mine m, gone g, oncely.job j
    where g.id = m.id and j.id = m.id and m.state in ('completed', 'failed', 'cancelled')
        and u.kind = j.kind and u.key = j.unique_key and u.job_id = j.id
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'executions', j.kind, m.state, count(*)
    from gone g join mine m on m.id = g.id join oncely.job j on j.id = g.id
    group by j.kind, m.state
),
told as (
    select count(oncely.tell_waiters(e.ids)) as n from (select array_agg(job_id) as ids from ended) e
)
select m.id::text, m.epoch from mine m join gone g on g.id = m.id
where (select n from told) >= 0
