-- Add to the buckets of the steps of time that are under way.
insert into oncely_latency (seconds, step, measure, queue, kind, buckets)
with span (seconds) as (values (60), (900), (21600))
select s.seconds, c.now / 1000000 / s.seconds * s.seconds, json_extract(i.value, '$.measure'),
    json_extract(i.value, '$.queue'), json_extract(i.value, '$.kind'),
    json_extract(i.value, '$.buckets')
from oncely_clock c cross join json_each(:doc) i cross join span s
where true
on conflict (seconds, step, measure, queue, kind) do update set buckets = (
    select json_group_object(one.key, one.n)
    from (
        select x.key, sum(x.value) as n
        from (
            select e.key, e.value from json_each(oncely_latency.buckets) e
            union all
            select e.key, e.value from json_each(excluded.buckets) e
        ) x
        group by x.key
    ) one
)
