-- Take a running job out of its lease and end it: whatever its execution still writes is refused.
with lock as materialized (
    select l.epoch, l.ids, l.started, l.worker, l.claimed_at from oncely.lease l
    where cast(:id as uuid) = any (l.ids)
    for update
),
target as materialized (
    select l.*, array_position(l.ids, cast(:id as uuid)) as n from lock l
    where cast(:id as uuid) = any (l.ids)
),
shrunk as (
    update oncely.lease l
    set ids = array_remove(t.ids, cast(:id as uuid)),
        started = t.started - case when t.n <= t.started then 1 else 0 end
    from target t where l.epoch = t.epoch and cardinality(t.ids) > 1
),
gone as (
    delete from oncely.lease l using target t where l.epoch = t.epoch and cardinality(t.ids) = 1
),
ended as (
    insert into oncely.outcome (job_id, state, epoch, attempt, worker, started_at, ended_at)
    select j.id, 'cancelled', t.epoch, s.attempts + 1, t.worker, t.claimed_at, clock_timestamp()
    from target t, oncely.job j join oncely.standing s on s.job_id = j.id
    where j.id = cast(:id as uuid)
    returning job_id
),
freed as (
    delete from oncely.unique_key u using ended e, oncely.job j
    where j.id = e.job_id and u.kind = j.kind and u.key = j.unique_key and u.job_id = j.id
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'executions', j.kind, 'cancelled', 1
    from ended e join oncely.job j on j.id = e.job_id
),
told as (
    select count(oncely.tell_waiters(e.ids)) as n from (select array_agg(job_id) as ids from ended) e
)
select job_id::text from ended where (select n from told) >= 0
