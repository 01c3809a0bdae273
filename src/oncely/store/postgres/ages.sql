-- How long the oldest job that is due waits, per queue: the first of each lane, found by one step in
-- the index each. There may be as many lanes as tenants, so only the first ones are looked at.
with recursive lane (queue, priority, name, due_at) as (
    (
        select r.queue, r.priority, r.lane, r.due_at from oncely.ready r
        order by r.queue, r.priority, r.lane, r.due_at limit 1
    )
    union all
    select n.queue, n.priority, n.lane, n.due_at
    from lane l cross join lateral (
        select r.queue, r.priority, r.lane, r.due_at from oncely.ready r
        where (r.queue, r.priority, r.lane) > (l.queue, l.priority, l.name)
        order by r.queue, r.priority, r.lane, r.due_at limit 1
    ) n
)
select x.queue, greatest(0, (extract(epoch from clock_timestamp() - min(x.due_at)) * 1000000)::bigint)
from (select l.queue, l.due_at from lane l limit :lane_limit) x
group by x.queue
