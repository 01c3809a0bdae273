-- Take the jobs that are due, under one new lease; the first `started` of them begin at once.
-- Scanned level by level, so that jobs due later on a high level cost the levels below nothing.
-- The cross join keeps the order of the loops, and so of the jobs, without a sort.
-- Where nothing was due, last_insert_rowid() is an older lease's: changes() tells.
insert into oncely_lease (nonce, worker, ids, started, claimed_at, expires_at)
with recursive level (priority) as (
    select max(r.priority) from oncely_ready r where r.queue = :queue
    union all
    select (select max(r.priority) from oncely_ready r
            where r.queue = :queue and r.priority < level.priority)
    from level where level.priority is not null
)
select :nonce, :worker, json_group_array(t.id), min(count(*), :started), t.now,
    t.now + :lease_us
from (
    select r.id, c.now
    from oncely_clock c cross join level cross join oncely_ready r
    where r.queue = :queue and r.priority = level.priority and r.due_at <= c.now
    limit :limit
) t
group by t.now;

delete from oncely_ready
where (queue, priority, due_at, id) in (
    select j.queue, j.priority, s.due_at, j.id
    from oncely_lease l cross join json_each(l.ids) m
    cross join oncely_job j on j.id = m.value
    cross join oncely_standing s on s.job_id = m.value
    where l.epoch = last_insert_rowid() and l.nonce = :nonce and changes() > 0
);

select j.id, l.epoch, l.nonce, j.kind, j.queue, j.payload, s.attempts, s.crashes, s.defers,
    j.max_attempts, j.timeout_seconds, (l.claimed_at - j.created_at) / 1e6
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_job j on j.id = m.value
cross join oncely_standing s on s.job_id = m.value
where l.epoch = last_insert_rowid() and l.nonce = :nonce and changes() > 0
order by m.key
