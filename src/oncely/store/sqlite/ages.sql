-- How long the oldest job that is due waits, per queue: the first of each lane, found by one step in
-- the index each. There may be as many lanes as tenants, so only the first ones are looked at.
with recursive waiting (queue) as (
    select min(r.queue) from oncely_ready r
    union all
    select (select min(r.queue) from oncely_ready r where r.queue > waiting.queue)
    from waiting where waiting.queue is not null
),
level (queue, priority) as (
    select waiting.queue, (
        select min(r.priority) from oncely_ready r where r.queue = waiting.queue
    )
    from waiting where waiting.queue is not null
    union all
    select level.queue, (
        select min(r.priority) from oncely_ready r
        where r.queue = level.queue and r.priority > level.priority
    )
    from level where level.priority is not null
),
lane (queue, priority, name) as (
    select level.queue, level.priority, (
        select min(r.lane) from oncely_ready r
        where r.queue = level.queue and r.priority = level.priority
    )
    from level where level.priority is not null
    union all
    select lane.queue, lane.priority, (
        select min(r.lane) from oncely_ready r
        where r.queue = lane.queue and r.priority = lane.priority and r.lane > lane.name
    )
    from lane where lane.name is not null
    limit :lane_limit
)
select lane.queue, max(0, (select now from oncely_clock) - min((
    select min(r.due_at) from oncely_ready r
    where r.queue = lane.queue and r.priority = lane.priority and r.lane = lane.name
)))
from lane where lane.name is not null
group by lane.queue
