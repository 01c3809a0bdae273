insert into oncely_queue (name, retry, timeout_seconds, require_key)
values (:name, :retry, :timeout_seconds, coalesce(:require_key, false))
on conflict (name) do update set
    retry = case when :set_retry then excluded.retry else retry end,
    timeout_seconds = case when :set_timeout then excluded.timeout_seconds
        else timeout_seconds end,
    require_key = coalesce(:require_key, require_key)
