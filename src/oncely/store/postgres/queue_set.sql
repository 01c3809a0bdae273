insert into oncely.queue as q (name, retry, timeout_seconds, require_key)
values (
    :name, cast(cast(:retry as text) as json), cast(:timeout_seconds as double precision),
    coalesce(cast(:require_key as boolean), false)
)
on conflict (name) do update set
    retry = case when cast(:set_retry as boolean) then excluded.retry else q.retry end,
    timeout_seconds = case when cast(:set_timeout as boolean) then excluded.timeout_seconds
        else q.timeout_seconds end,
    require_key = coalesce(cast(:require_key as boolean), q.require_key)
