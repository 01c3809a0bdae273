-- The queues that have a policy or jobs. So many that wait are counted, and no more: enough to see
-- whether it is many.
with recursive waiting (name) as (
    select min(r.queue) from oncely.ready r
    union all
    select (select min(r.queue) from oncely.ready r where r.queue > waiting.name)
    from waiting where waiting.name is not null
),
named as (
    select name from waiting where name is not null
    union select l.queue from oncely.lease l where l.queue is not null
    union select f.name from oncely.flow_limit f where f.scope = 'queue'
    union select q.name from oncely.queue q
)
select n.name, coalesce(f.paused, false), f.concurrency, f.rate_count, f.rate_seconds,
    q.retry::text, q.timeout_seconds,
    (select count(*) from (
        select from oncely.ready r where r.queue = n.name limit :count_limit
    ) x),
    (select coalesce(sum(cardinality(l.ids)), 0) from oncely.lease l where l.queue = n.name)::bigint,
    coalesce(q.require_key, false), q.push_url, q.push_mode
from named n
left join oncely.flow_limit f on f.scope = 'queue' and f.name = n.name
left join oncely.queue q on q.name = n.name
order by n.name
