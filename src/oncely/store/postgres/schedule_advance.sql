-- Ticks before due_us are dealt with, and a worker that has the schedule in its code runs.
update oncely.schedule s
set due_at = timestamptz 'epoch' + d.due_us / 1000000 * interval '1 second'
        + d.due_us % 1000000 * interval '1 microsecond',
    last_at = coalesce(
        timestamptz 'epoch' + d.last_us / 1000000 * interval '1 second'
            + d.last_us % 1000000 * interval '1 microsecond',
        s.last_at
    ),
    seen_at = clock_timestamp()
from json_to_recordset(cast(cast(:doc as text) as json)) as d (
    name text, due_us bigint, last_us bigint
)
where s.name = d.name
