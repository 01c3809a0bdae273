-- How many jobs run under each of these limits on that. Leases of several groups count by their jobs:
-- only those from before the limit was set can hold any of its group.
select f.scope, f.name, case f.scope
    when 'queue' then coalesce((
        select sum(json_array_length(l.ids)) from oncely_lease l where l.queue = f.name
    ), 0)
    else coalesce((
        select sum(json_array_length(l.ids)) from oncely_lease l where l.group_key = f.name
    ), 0) + (
        select count(*)
        from oncely_lease l cross join json_each(l.ids) m cross join oncely_job j on j.id = m.value
        where l.group_key = '' and l.claimed_at <= f.since and j.group_key = f.name
    )
end
from json_each(:doc) w cross join oncely_flow_limit f
    on f.scope = json_extract(w.value, '$.scope') and f.name = json_extract(w.value, '$.name')
where f.concurrency is not null
