-- Add to the buckets of the steps of time that are under way. In order, so that two workers wait
-- for each other and no more.
insert into oncely.latency as l (seconds, step, measure, queue, kind, buckets)
select s.seconds, floor(extract(epoch from clock_timestamp()) / s.seconds)::bigint * s.seconds,
    i.measure, i.queue, i.kind, i.buckets
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    measure text, queue text, kind text, buckets json
)
cross join (values (60), (900), (21600)) s (seconds)
order by 1, 2, 3, 4, 5
on conflict (seconds, step, measure, queue, kind) do update set buckets = (
    select json_object_agg(b.key, b.n)
    from (
        select x.key, sum(x.value::bigint) as n
        from (
            select * from json_each_text(l.buckets)
            union all
            select * from json_each_text(excluded.buckets)
        ) x
        group by x.key
    ) b
)
