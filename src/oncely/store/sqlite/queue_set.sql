insert into oncely_queue (name, retry, timeout_seconds)
values (:name, :retry, :timeout_seconds)
on conflict (name) do update set
    retry = case when :set_retry then excluded.retry else retry end,
    timeout_seconds = case when :set_timeout then excluded.timeout_seconds
        else timeout_seconds end
