-- Scanned level by level, so that jobs due later on a high level cost the levels below nothing.
with recursive level (priority) as (
    select max(r.priority) from oncely.ready r where r.queue = :queue
    union all
    select (select max(r.priority) from oncely.ready r
            where r.queue = :queue and r.priority < level.priority)
    from level where level.priority is not null
),
took as (
    delete from oncely.ready where ctid = any (array(
        select due.ctid
        from level cross join lateral (
            select r.ctid from oncely.ready r
            where r.queue = :queue and r.priority = level.priority
                and r.due_at <= (select clock_timestamp())
            order by r.due_at, r.id limit :limit
            for update skip locked
        ) due
        where level.priority is not null
        limit :limit
    ))
    returning id, priority, due_at, attempts
),
-- Read once: a subquery could be read once per job, and each would get a lease of its own.
clock as materialized (select clock_timestamp() as now),
held as (
    insert into oncely.lease (nonce, worker, ids, claimed_at, expires_at)
    select :nonce, :worker, array_agg(t.id order by t.id), c.now,
        c.now + :lease_us * interval '1 microsecond'
    from took t, clock c
    group by c.now
    returning epoch
)
select h.epoch, t.id::text, t.attempts + 1, j.kind, j.queue, j.payload::text
from held h cross join took t join oncely.job j on j.id = t.id
order by t.priority desc, t.due_at, t.id
