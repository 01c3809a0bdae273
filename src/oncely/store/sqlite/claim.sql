-- Take the due jobs without a group, under one new lease; the first `started` of them begin at
-- once. Scanned level by level, so that jobs due later on a high level cost the levels below
-- nothing. The cross join keeps the order of the loops, and so of the jobs, without a sort; the
-- likelihood says that levels are few, or SQLite reads all that waits into a Bloom filter once
-- somebody has run ANALYZE. Of a queue with limits nothing is taken: that needs more than one
-- operation.
-- A payload of more bytes than `payload_limit`, if there is one, is left out.
-- Where nothing was due, last_insert_rowid() is an older lease's: changes() tells.
insert into oncely_lease (nonce, worker, queue, ids, started, claimed_at, expires_at)
with recursive level (priority) as (
    select max(r.priority) from oncely_ready r
    where r.queue = :queue and not exists (
        select 1 from oncely_flow_limit f where f.scope = 'queue' and f.name = :queue
    ) and :pushes = exists (
        select 1 from oncely_queue q where q.name = :queue and q.push_url is not null
    )
    union all
    select (select max(r.priority) from oncely_ready r
            where r.queue = :queue and r.priority < level.priority)
    from level where level.priority is not null
)
select :nonce, :worker, :queue, json_group_array(t.id), min(count(*), :started), t.now,
    t.now + :lease_us
from (
    select r.id, c.now
    from oncely_clock c cross join level cross join oncely_ready r
    where likelihood(level.priority is not null, 0.000001)
        and r.queue = :queue and r.priority = level.priority and r.lane = '' and r.due_at <= c.now
    limit :limit
) t
group by t.now;

delete from oncely_ready
where (queue, priority, lane, due_at, id) in (
    select j.queue, j.priority, '', s.due_at, j.id
    from oncely_lease l cross join json_each(l.ids) m
    cross join oncely_job j on j.id = m.value
    cross join oncely_standing s on s.job_id = m.value
    where l.epoch = last_insert_rowid() and l.nonce = :nonce and changes() > 0
);

select j.id, l.epoch, l.nonce, j.kind, j.queue, j.group_key,
    case when :payload_limit is null or length(cast(j.payload as blob)) <= :payload_limit
        then j.payload else '' end,
    coalesce(x.attempts, 0), coalesce(x.crashes, 0), coalesce(x.defers, 0),
    j.max_attempts, j.timeout_seconds, coalesce((l.claimed_at - x.first_deferred_at) / 1e6, 0.0), q.retry,
    q.timeout_seconds, (l.claimed_at - coalesce(x.due_at, j.due_at)) / 1e6,
    j.unique_key is not null, j.priority, j.traceparent, coalesce(x.hand_backs, 0)
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_job j on j.id = m.value
left join oncely_execution x on x.job_id = m.value and x.epoch = (
    select max(e.epoch) from oncely_execution e where e.job_id = m.value
)
left join oncely_queue q on q.name = j.queue
where l.epoch = last_insert_rowid() and l.nonce = :nonce and changes() > 0
order by m.key
