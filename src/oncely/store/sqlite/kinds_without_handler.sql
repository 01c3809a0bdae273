-- Kinds of which a job waits because the last worker that claimed it had no handler, and the number
-- of such jobs. They are due within the next minute, or were the last to fall due: of each lane up to
-- `limit` jobs are looked at.
with recursive waiting (queue) as (
    select min(r.queue) from oncely_ready r
    union all
    select (select min(r.queue) from oncely_ready r where r.queue > waiting.queue)
    from waiting where waiting.queue is not null
),
level (queue, priority) as (
    select waiting.queue, (
        select r.priority from oncely_ready r where r.queue = waiting.queue
        order by r.priority limit 1
    )
    from waiting where waiting.queue is not null
    union all
    select level.queue, (
        select r.priority from oncely_ready r
        where r.queue = level.queue and r.priority > level.priority
        order by r.priority limit 1
    )
    from level where level.priority is not null
),
found (ids) as (
    select (
        select json_group_array(x.id) from (
            select r.id from oncely_ready r
            where r.queue = level.queue and r.priority = level.priority and r.lane = n.value
                and r.due_at <= (select now from oncely_clock) + 60000000
            order by r.due_at desc limit :limit
        ) x
    )
    from level cross join json_each('["", "later"]') n
    where level.priority is not null
)
select j.kind, count(*)
from found cross join json_each(found.ids) m
cross join oncely_job j on j.id = m.value
where :error = (
    select json_extract(e.error, '$.type') from oncely_execution e
    where e.job_id = j.id order by e.epoch desc limit 1
)
group by j.kind
order by j.kind
