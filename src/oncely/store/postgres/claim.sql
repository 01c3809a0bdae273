-- Take the due jobs without a group, under one new lease; the first `started` of them begin at
-- once. Scanned level by level, so that jobs due later on a high level cost the levels below
-- nothing. Of a queue with limits nothing is taken: that needs more than one statement.
-- `bounds` says for a level how long ago the first of its jobs was due, in microseconds: before that
-- are only the dead entries of jobs that were claimed, and a step over each of them costs.
-- A payload of more bytes than `payload_limit`, if there is one, is left out.
-- `apart`: a lease for each, so that transactions which end their jobs do not wait for each other.
with recursive bound as materialized (
    select b.key::integer as priority,
        clock_timestamp() - b.value::bigint * interval '1 microsecond' as due_at
    from json_each_text(cast(cast(:bounds as text) as json)) b
),
-- From above the highest priority that there can be. A level with a bound is visited without a look
-- whether it is there: that would step over all of its dead entries once nothing waits.
level (priority) as (
    select 32768 where not exists (
        select from oncely.flow_limit f where f.scope = 'queue' and f.name = :queue
    ) and :pushes = exists (
        select from oncely.queue q where q.name = :queue and q.push_url is not null
    )
    union all
    select coalesce(
        (select max(r.priority) from oncely.ready r
         where r.queue = :queue and r.priority < level.priority
            and r.priority > coalesce(b.priority, -32769)),
        b.priority
    )
    from level cross join lateral (
        select max(k.priority) as priority from bound k where k.priority < level.priority
    ) b
    where level.priority is not null
),
took as (
    delete from oncely.ready where ctid = any (array(
        select due.ctid
        from level cross join lateral (
            select coalesce(
                (select k.due_at from bound k where k.priority = level.priority), '-infinity'
            ) as due_at
        ) bound cross join lateral (
            select r.ctid from oncely.ready r
            where r.queue = :queue and r.priority = level.priority and r.lane = ''
                and r.due_at >= bound.due_at and r.due_at <= (select clock_timestamp())
            order by r.due_at, r.id limit :limit
            for update skip locked
        ) due
        where level.priority is not null
        limit :limit
    ))
    returning id, priority, due_at, attempts, crashes, defers, hand_backs
),
-- Read once: a subquery could be read once per job, and each would get a lease of its own.
clock as materialized (select clock_timestamp() as now),
held as (
    insert into oncely.lease (nonce, worker, queue, ids, started, claimed_at, expires_at)
    select :nonce, :worker, :queue, array_agg(t.id order by t.priority desc, t.due_at, t.id),
        least(count(*), :started), c.now, c.now + :lease_us * interval '1 microsecond'
    from took t, clock c
    group by c.now, case when :apart then t.id end
    returning epoch, nonce, claimed_at, ids[1] as first
)
select t.id::text, h.epoch, h.nonce, j.kind, j.queue, j.group_key,
    case when cast(:payload_limit as bigint) is null
        or octet_length(j.payload::text) <= :payload_limit then j.payload::text else '' end,
    t.attempts, t.crashes, t.defers, j.max_attempts, j.timeout_seconds,
    case when t.defers > 0 then coalesce(date_part('epoch', h.claimed_at - (
        select e.first_deferred_at from oncely.execution e
        where e.job_id = t.id order by e.epoch desc limit 1
    )), 0) else 0 end, q.retry::text, q.timeout_seconds,
    date_part('epoch', h.claimed_at - t.due_at),
    j.unique_key is not null, j.priority, j.traceparent, t.hand_backs
-- In order before the wide rows are made, which would cost more to sort.
from (select * from took order by priority desc, due_at, id) t
join held h on not :apart or t.id = h.first
-- One by one, whatever was the size of the table when this was planned.
cross join lateral (select * from oncely.job k where k.id = t.id offset 0) j
left join oncely.queue q on q.name = j.queue
order by t.priority desc, t.due_at, t.id
