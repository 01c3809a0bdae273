-- Every level of every queue in which something waits, found by one step in the index each: when
-- its next job is due that has no group or is not filed yet (in microseconds from now), whether
-- it has jobs of groups, whether any of those are filed and so were due before, whether it has limits,
-- and whether its jobs are pushed.
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
select l.queue, l.priority,
    (extract(epoch from least(
        (select r.due_at from oncely.ready r
         where r.queue = l.queue and r.priority = l.priority and r.lane = ''
         order by r.due_at limit 1),
        (select r.due_at from oncely.ready r
         where r.queue = l.queue and r.priority = l.priority and r.lane = 'later'
         order by r.due_at limit 1)
    ) - statement_timestamp()) * 1000000)::bigint,
    -- not by exists, for which the planner may read all lanes into a hash
    (select true from oncely.ready r
     where r.queue = l.queue and r.priority = l.priority and r.lane > '' limit 1) is true,
    (select true from oncely.ready r
     where r.queue = l.queue and r.priority = l.priority and r.lane > 'g:' and r.lane < 'h'
     limit 1) is true,
    exists (select from oncely.flow_limit f where f.scope = 'queue' and f.name = l.queue),
    exists (select from oncely.queue q where q.name = l.queue and q.push_url is not null)
from level l
order by l.queue, l.priority desc
