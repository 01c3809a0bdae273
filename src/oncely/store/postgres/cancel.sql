-- The row in ready is the right to run the job: who deletes it, a claim or this, decides.
with target as (
    select j.id, j.queue, j.priority, j.kind, j.unique_key, s.due_at,
        array['', 'later', 'g:' || j.group_key] as lanes
    from oncely.job j join oncely.standing s on s.job_id = j.id
    where j.id = cast(:id as uuid)
),
gone as (
    delete from oncely.ready r using target t
    where r.queue = t.queue and r.priority = t.priority and r.lane = any (t.lanes)
        and r.due_at = t.due_at and r.id = t.id
    returning r.id, r.attempts
),
ended as (
    insert into oncely.outcome (job_id, state, attempt, ended_at)
    select id, 'cancelled', attempts, clock_timestamp() from gone
    returning job_id
),
freed as (
    delete from oncely.unique_key u using target t, ended e
    where e.job_id = t.id and u.kind = t.kind and u.key = t.unique_key and u.job_id = t.id
),
told as (
    select count(oncely.tell_waiters(e.ids)) as n from (select array_agg(job_id) as ids from ended) e
)
select job_id::text from ended where (select n from told) >= 0
