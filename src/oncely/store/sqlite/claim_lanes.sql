-- Take due jobs from these lanes of one level, up to `quota` from each and `limit` in all, in the
-- order of the lanes, under one new lease.
-- Where nothing was due, last_insert_rowid() is an older lease's: changes() tells.
insert into oncely_lease (nonce, worker, queue, group_key, ids, started, claimed_at, expires_at)
select :nonce, :worker, :queue, :group_key, json_group_array(t.id), count(*), t.now,
    t.now + :lease_us
from (
    select m.value as id, c.now
    from oncely_clock c cross join json_each(:doc) d cross join json_each((
        select json_group_array(x.id) from (
            select r.id from oncely_ready r
            where r.queue = :queue and r.priority = :priority and r.lane = d.value
                and r.due_at <= c.now
            order by r.due_at, r.id limit :quota
        ) x
    )) m
    limit :limit
) t
group by t.now;

delete from oncely_ready
where (queue, priority, lane, due_at, id) in (
    select j.queue, j.priority, case when j.group_key is null then '' else 'g:' || j.group_key end,
        s.due_at, j.id
    from oncely_lease l cross join json_each(l.ids) m
    cross join oncely_job j on j.id = m.value
    cross join oncely_standing s on s.job_id = m.value
    where l.epoch = last_insert_rowid() and l.nonce = :nonce and changes() > 0
);

select j.id, l.epoch, l.nonce, j.kind, j.queue, j.group_key, j.payload, s.attempts, s.crashes, s.defers,
    j.max_attempts, j.timeout_seconds, (l.claimed_at - j.created_at) / 1e6, q.retry,
    q.timeout_seconds, (l.claimed_at - s.due_at) / 1e6,
    j.unique_key is not null, j.priority, j.traceparent
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_job j on j.id = m.value
cross join oncely_standing s on s.job_id = m.value
left join oncely_queue q on q.name = j.queue
where l.epoch = last_insert_rowid() and l.nonce = :nonce and changes() > 0
order by m.key
