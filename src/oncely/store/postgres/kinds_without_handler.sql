-- Kinds of which a job waits because the last worker that claimed it had no handler, and the number
-- of such jobs. They are due within the next minute, or were the last to fall due: of each lane up to
-- `limit` jobs are looked at.
with recursive level (queue, priority) as (
    (select r.queue, r.priority from oncely.ready r order by r.queue, r.priority limit 1)
    union all
    select n.queue, n.priority
    from level l cross join lateral (
        select r.queue, r.priority from oncely.ready r
        where (r.queue, r.priority) > (l.queue, l.priority)
        order by r.queue, r.priority limit 1
    ) n
)
select j.kind, count(*)
from level l
cross join unnest(array['', 'later']) n (lane)
cross join lateral (
    select r.id from oncely.ready r
    where r.queue = l.queue and r.priority = l.priority and r.lane = n.lane
        and r.due_at <= statement_timestamp() + interval '1 minute'
    order by r.due_at desc limit :limit
) w
-- One by one, whatever was the size of the tables when this was planned.
cross join lateral (
    select e.error ->> 'type' as error from oncely.execution e
    where e.job_id = w.id order by e.epoch desc limit 1
) x
cross join lateral (select k.kind from oncely.job k where k.id = w.id offset 0) j
where x.error = :error
group by j.kind
order by j.kind
