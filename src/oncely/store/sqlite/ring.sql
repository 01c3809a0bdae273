-- The next lanes of one level: those of groups in the first stretch, that of jobs without a group,
-- those of groups in the second. Each is found by one step in the index, and none that is not asked
-- for.
with recursive first (lane) as (
    select * from (
        select r.lane from oncely_ready r
        where r.queue = :queue and r.priority = :priority and r.lane > :first and r.lane < 'h'
        order by r.lane limit 1
    ) f
    union all
    select (
        select r.lane from oncely_ready r
        where r.queue = :queue and r.priority = :priority and r.lane > first.lane and r.lane < 'h'
        order by r.lane limit 1
    )
    from first where first.lane is not null
),
second (lane) as (
    select * from (
        select r.lane from oncely_ready r
        where r.queue = :queue and r.priority = :priority and r.lane > :second and r.lane <= :until
        order by r.lane limit 1
    ) f
    union all
    select (
        select r.lane from oncely_ready r
        where r.queue = :queue and r.priority = :priority and r.lane > second.lane
            and r.lane <= :until
        order by r.lane limit 1
    )
    from second where second.lane is not null
)
select lane from (
    select lane from first where lane is not null
    union all
    select '' where :plain and (
        select 1 from oncely_ready r
        where r.queue = :queue and r.priority = :priority and r.lane = ''
            and r.due_at <= (select now from oncely_clock)
        limit 1
    )
    union all
    select lane from second where lane is not null
) ring
limit :limit
