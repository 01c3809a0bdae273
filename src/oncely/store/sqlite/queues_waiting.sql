-- The queues in which something waits, each found by one step in the index.
with recursive lane (queue) as (
    select min(r.queue) from oncely_ready r
    union all
    select (select min(r.queue) from oncely_ready r where r.queue > lane.queue)
    from lane where lane.queue is not null
)
select queue from lane where queue is not null
