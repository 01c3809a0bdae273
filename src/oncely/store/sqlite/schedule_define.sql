-- One that is there already gives way only if nobody who runs has it in this form.
insert into oncely_schedule (
    name, cron, timezone, catch_up, job, definition, due_at, seen_at
)
select
    json_extract(d.value, '$.name'), json_extract(d.value, '$.cron'),
    json_extract(d.value, '$.timezone'), json_extract(d.value, '$.catch_up'),
    json_extract(d.value, '$.job'), json_extract(d.value, '$.definition'),
    json_extract(d.value, '$.due_us'), c.now
from json_each(:doc) d cross join oncely_clock c
where true
on conflict (name) do update set
    cron = excluded.cron, timezone = excluded.timezone, catch_up = excluded.catch_up,
    job = excluded.job, definition = excluded.definition, due_at = excluded.due_at,
    seen_at = excluded.seen_at
where oncely_schedule.seen_at < (select now from oncely_clock) - :gone_us
