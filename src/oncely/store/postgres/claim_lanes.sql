-- Take due jobs from these lanes of one level, up to `quota` from each and `limit` in all, in the
-- order of the lanes, under one new lease.
with took as (
    delete from oncely.ready where ctid = any (array(
        select due.ctid
        from json_array_elements_text(cast(:doc as json)) with ordinality d (lane, n)
        cross join lateral (
            select r.ctid from oncely.ready r
            where r.queue = :queue and r.priority = :priority and r.lane = d.lane
                and r.due_at <= (select clock_timestamp())
            order by r.due_at, r.id limit :quota
            for update skip locked
        ) due
        limit :limit
    ))
    returning id, due_at, attempts, crashes, defers
),
clock as materialized (select clock_timestamp() as now),
held as (
    insert into oncely.lease (
        nonce, worker, queue, group_key, ids, started, claimed_at, expires_at
    )
    select :nonce, :worker, :queue, cast(:group_key as text), array_agg(t.id order by t.due_at, t.id),
        count(*), c.now, c.now + :lease_us * interval '1 microsecond'
    from took t, clock c
    group by c.now
    returning epoch, nonce, claimed_at
)
select t.id::text, h.epoch, h.nonce, j.kind, j.queue, j.group_key, j.payload::text, t.attempts,
    t.crashes, t.defers, j.max_attempts, j.timeout_seconds,
    date_part('epoch', h.claimed_at - j.created_at), q.retry::text, q.timeout_seconds,
    date_part('epoch', h.claimed_at - t.due_at),
    j.unique_key is not null, j.priority, j.traceparent
from held h cross join took t
-- One by one, whatever was the size of the table when this was planned.
cross join lateral (select * from oncely.job k where k.id = t.id offset 0) j
left join oncely.queue q on q.name = j.queue
order by t.due_at, t.id
