-- The next lanes of groups on one level, each found by one step in the index.
with recursive lane (lane) as (
    select * from (
        select r.lane from oncely.ready r
        where r.queue = :queue and r.priority = :priority and r.lane > :after and r.lane <= :until
        order by r.lane limit 1
    ) f
    union all
    select (
        select r.lane from oncely.ready r
        where r.queue = :queue and r.priority = :priority and r.lane > lane.lane
            and r.lane <= :until
        order by r.lane limit 1
    )
    from lane where lane.lane is not null
)
select lane from lane where lane is not null limit :limit
