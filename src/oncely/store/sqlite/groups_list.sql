-- The groups that have a limit or a pause.
select f.name, f.paused, f.concurrency, f.rate_count, f.rate_seconds,
    (select coalesce(sum(json_array_length(l.ids)), 0) from oncely_lease l
     where l.group_key = f.name)
    + (select count(*)
       from oncely_lease l cross join json_each(l.ids) m cross join oncely_job j on j.id = m.value
       where l.group_key = '' and j.group_key = f.name)
from oncely_flow_limit f where f.scope = 'group'
order by f.name
