-- End executions of one lease. What the lease no longer holds is not in the answer, and nothing
-- is written for it. The lease row is locked first, and all is decided from the locked row.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, state text, outcome text, attempt smallint, attempts smallint, delay_us bigint,
        result text, error text
    )
),
lock as materialized (
    select epoch, ids, worker, claimed_at, clock_timestamp() as now from oncely.lease
    where epoch = :epoch and nonce = :nonce
    for update
),
held as materialized (
    select i.*, l.epoch, l.worker, l.claimed_at, l.now
    from lock l cross join unnest(l.ids) m (id) join input i on i.id = m.id
),
rest as materialized (
    select array(
        select m.id from lock l, unnest(l.ids) m (id)
        where m.id not in (select id from held)
    ) as ids
),
shrunk as (
    update oncely.lease l set ids = rest.ids from rest
    where l.epoch = (select epoch from lock) and cardinality(rest.ids) > 0
),
gone as (
    delete from oncely.lease l using rest
    where l.epoch = (select epoch from lock) and cardinality(rest.ids) = 0
),
ended as (
    insert into oncely.outcome (
        job_id, state, epoch, attempt, worker, started_at, ended_at, error, result
    )
    select id, state, epoch, attempt, worker, claimed_at, now, error::json, result::json
    from held where state is not null
),
back as (
    insert into oncely.execution (
        job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, error
    )
    select id, epoch, outcome, attempt, worker, claimed_at, now,
        now + delay_us * interval '1 microsecond', attempts, error::json
    from held where state is null
    returning job_id, due_at, attempts
),
waiting as (
    insert into oncely.ready (queue, priority, due_at, id, attempts)
    select j.queue, j.priority, b.due_at, j.id, b.attempts
    from back b join oncely.job j on j.id = b.job_id
),
freed as (
    delete from oncely.unique_key u using held h, oncely.job j
    where h.state in ('completed', 'failed', 'cancelled') and j.id = h.id
        and u.kind = j.kind and u.key = j.unique_key and u.job_id = j.id
)
select id::text from held
