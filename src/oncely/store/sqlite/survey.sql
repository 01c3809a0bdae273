-- Every level of every queue in which something waits, found by one step in the index each: when
-- its next job is due that has no group or is not filed yet (in microseconds from now), whether
-- it has jobs of groups, whether any of those are filed and so were due before, whether it has limits,
-- and whether its jobs are pushed.
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
)
select level.queue, level.priority,
    min(
        coalesce((select r.due_at from oncely_ready r
                  where r.queue = level.queue and r.priority = level.priority and r.lane = ''
                  order by r.due_at limit 1), 9e18),
        coalesce((select r.due_at from oncely_ready r
                  where r.queue = level.queue and r.priority = level.priority and r.lane = 'later'
                  order by r.due_at limit 1), 9e18)
    ) - (select now from oncely_clock),
    exists (
        select 1 from oncely_ready r
        where r.queue = level.queue and r.priority = level.priority and r.lane > ''
    ),
    exists (
        select 1 from oncely_ready r
        where r.queue = level.queue and r.priority = level.priority and r.lane > 'g:'
            and r.lane < 'h'
    ),
    exists (
        select 1 from oncely_flow_limit f where f.scope = 'queue' and f.name = level.queue
    ),
    exists (
        select 1 from oncely_queue q where q.name = level.queue and q.push_url is not null
    )
from level where level.priority is not null
order by level.queue, level.priority desc
