-- The limits among these. The write lock that every claim has holds them all.
select f.scope, f.name, true, f.paused, f.concurrency, f.rate_count, f.rate_seconds,
    min(f.rate_count, f.tokens
        + max(0, c.now - f.refilled_at) / 1e6 * f.rate_count / f.rate_seconds),
    c.now
from oncely_clock c cross join json_each(:doc) w cross join oncely_flow_limit f
    on f.scope = json_extract(w.value, '$.scope') and f.name = json_extract(w.value, '$.name')
