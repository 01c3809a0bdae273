-- How the schedules of a worker stand, and what time it is. One row each, also if it is not there.
select
    d.name, (extract(epoch from c.now) * 1000000)::bigint, s.definition, s.cron, s.timezone,
    (extract(epoch from s.due_at) * 1000000)::bigint,
    (extract(epoch from s.last_at) * 1000000)::bigint,
    (extract(epoch from s.seen_at) * 1000000)::bigint, s.paused_at is not null
from json_to_recordset(cast(cast(:doc as text) as json)) as d (name text)
cross join (select clock_timestamp() as now) c
left join oncely.schedule s on s.name = d.name
