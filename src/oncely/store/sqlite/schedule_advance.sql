-- Ticks before due_us are dealt with, and a worker that has the schedule in its code runs.
update oncely_schedule
set due_at = json_extract(d.value, '$.due_us'),
    last_at = coalesce(json_extract(d.value, '$.last_us'), last_at),
    seen_at = (select now from oncely_clock)
from json_each(:doc) d
where name = json_extract(d.value, '$.name')
