select
    name, cron, timezone, catch_up, job,
    seen_at >= (select now from oncely_clock) - :gone_us, paused_at is not null,
    due_at, last_at
from oncely_schedule
where :name is null or name = :name
order by name
