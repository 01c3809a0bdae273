-- One that is there already gives way only if nobody who runs has it in this form.
insert into oncely.schedule (
    name, cron, timezone, catch_up, job, definition, due_at, seen_at
)
select
    d.name, d.cron, d.timezone, d.catch_up, d.job, d.definition,
    timestamptz 'epoch' + d.due_us / 1000000 * interval '1 second'
        + d.due_us % 1000000 * interval '1 microsecond',
    clock_timestamp()
from json_to_recordset(cast(cast(:doc as text) as json)) as d (
    name text, cron text, timezone text, catch_up text, job text, definition text, due_us bigint
)
order by d.name collate "C"
on conflict (name) do update set
    cron = excluded.cron, timezone = excluded.timezone, catch_up = excluded.catch_up,
    job = excluded.job, definition = excluded.definition, due_at = excluded.due_at,
    seen_at = excluded.seen_at
where oncely.schedule.seen_at < clock_timestamp() - :gone_us * interval '1 microsecond'
