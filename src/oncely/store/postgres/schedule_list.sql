select
    name, cron, timezone, catch_up, job,
    seen_at >= clock_timestamp() - :gone_us * interval '1 microsecond', paused_at is not null,
    (extract(epoch from due_at) * 1000000)::bigint, (extract(epoch from last_at) * 1000000)::bigint
from oncely.schedule
where cast(:name as text) is null or name = cast(:name as text)
order by name
