-- End executions. What a lease no longer holds is not in the answer, and nothing is written for
-- it. The leases are locked first, in order, and all is decided from the locked rows.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, epoch bigint, nonce bigint, state text, outcome text, attempt smallint,
        attempts smallint, crashes smallint, defers smallint, hand_backs smallint, delay_us bigint,
        result text, error text
    )
),
lock as materialized (
    select l.epoch, l.nonce, l.ids, l.started, l.worker, l.claimed_at, clock_timestamp() as now
    from oncely.lease l
    where l.epoch in (select i.epoch from input i)
    order by l.epoch
    for update
),
member as materialized (
    select l.epoch, l.nonce, l.worker, l.claimed_at, l.now, m.id, m.n, l.started
    from lock l cross join unnest(l.ids) with ordinality m (id, n)
),
held as materialized (
    select i.*, m.worker, m.claimed_at, m.now
    from input i join member m on m.id = i.id and m.epoch = i.epoch and m.nonce = i.nonce
),
left_over as materialized (
    -- As many as before are begun: where one has ended, the next one began.
    select m.epoch, array_agg(m.id order by m.n) as ids, least(max(m.started), count(*)) as started
    from member m where m.id not in (select h.id from held h)
    group by m.epoch
),
shrunk as (
    update oncely.lease l set ids = o.ids, started = o.started
    from left_over o
    where l.epoch = o.epoch and l.epoch in (select h.epoch from held h)
),
gone as (
    delete from oncely.lease l
    where l.epoch in (select h.epoch from held h)
        and l.epoch not in (select o.epoch from left_over o)
),
ended as (
    insert into oncely.outcome (
        job_id, state, epoch, attempt, worker, started_at, ended_at, error, result
    )
    select id, state, epoch, attempt, worker, claimed_at, now, error::json, result::json
    from held where state is not null
    returning job_id
),
back as (
    insert into oncely.execution (
        job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, crashes,
        defers, hand_backs, error, first_deferred_at
    )
    select id, epoch, outcome, attempt, worker, claimed_at, now,
        now + delay_us * interval '1 microsecond', attempts, crashes, defers, hand_backs,
        error::json,
        -- The first defer in a row is this one, or the last delivery knows when it was.
        case when h.defers > 0 then coalesce((
            select e.first_deferred_at from oncely.execution e
            where e.job_id = h.id order by e.epoch desc limit 1
        ), now) end
    from held h where state is null and outcome is not null
    returning job_id, due_at, attempts, crashes, defers, hand_backs
),
untried as (
    -- handed back as it was: neither state nor outcome
    select h.id, s.due_at, h.attempts, h.crashes, h.defers, h.hand_backs
    from held h
    -- One by one, here and below, whatever was the size of the table when this was planned.
    cross join lateral (select t.due_at from oncely.standing t where t.job_id = h.id offset 0) s
    where h.state is null and h.outcome is null
),
waiting as (
    insert into oncely.ready (
        queue, priority, lane, due_at, id, attempts, crashes, defers, hand_backs
    )
    select j.queue, j.priority, case when j.group_key is null then '' else 'later' end, b.due_at,
        j.id, b.attempts, b.crashes, b.defers, b.hand_backs
    from (select * from back union all select * from untried) b
    cross join lateral (select * from oncely.job k where k.id = b.job_id offset 0) j
    returning queue, due_at
),
freed as (
    delete from oncely.unique_key where ctid = any (array(
        select u.at
        from held h
        cross join lateral (select * from oncely.job k where k.id = h.id offset 0) j
        cross join lateral (
            select k.ctid as at from oncely.unique_key k
            where k.kind = j.kind and k.key = j.unique_key and k.job_id = j.id offset 0
        ) u
        where h.state in ('completed', 'failed', 'cancelled')
    ))
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'executions', j.kind, coalesce(h.state, h.outcome), count(*)
    from held h cross join lateral (select * from oncely.job k where k.id = h.id offset 0) j
    where coalesce(h.state, h.outcome) is not null
    group by j.kind, coalesce(h.state, h.outcome)
),
woken as (
    select count(oncely.wake(w.queue)) as queues
    from (select distinct queue from waiting where due_at <= clock_timestamp()) w
),
told as (
    select count(oncely.tell_waiters(e.ids)) as n from (select array_agg(job_id) as ids from ended) e
)
select id::text, epoch, nonce from held
where (select queues from woken) >= 0 and (select n from told) >= 0
