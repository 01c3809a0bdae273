-- How the schedules of a worker stand, and what time it is. One row each, also if it is not there.
select
    json_extract(d.value, '$.name'), c.now, s.definition, s.cron, s.timezone,
    s.due_at, s.last_at, s.seen_at, s.paused_at is not null
from json_each(:doc) d
cross join oncely_clock c
left join oncely_schedule s on s.name = json_extract(d.value, '$.name')
