-- How many jobs run under each of these limits on that. Leases of several groups count by their jobs:
-- only those from before the limit was set can hold any of its group.
select f.scope, f.name, coalesce(case f.scope
    when 'queue' then (
        select sum(cardinality(l.ids)) from oncely.lease l where l.queue = f.name
    )
    else (
        select coalesce(sum(cardinality(l.ids)), 0) from oncely.lease l where l.group_key = f.name
    ) + (
        select count(*)
        from oncely.lease l cross join unnest(l.ids) m (id)
        -- One by one, whatever was the size of the table when this was planned.
        cross join lateral (select k.group_key from oncely.job k where k.id = m.id offset 0) j
        where l.group_key = '' and l.claimed_at < f.since + interval '1 minute'
            and j.group_key = f.name
    )
end, 0)::bigint
from json_to_recordset(cast(:doc as json)) as w (scope text, name text)
cross join lateral (
    select x.* from oncely.flow_limit x where x.scope = w.scope and x.name = w.name limit 1
) f
where f.concurrency is not null
