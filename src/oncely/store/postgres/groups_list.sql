-- The groups that have a limit or a pause.
select f.name, f.paused, f.concurrency, f.rate_count, f.rate_seconds,
    ((select coalesce(sum(cardinality(l.ids)), 0) from oncely.lease l where l.group_key = f.name)
    + (select count(*)
       from oncely.lease l cross join unnest(l.ids) m (id) join oncely.job j on j.id = m.id
       where l.group_key = '' and j.group_key = f.name))::bigint
from oncely.flow_limit f where f.scope = 'group'
order by f.name
