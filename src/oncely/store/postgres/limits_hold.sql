-- The limits among these, locked until the end of the transaction so that two claims cannot fill
-- the same room. One that somebody else has locked is named, but not held.
with wanted as materialized (
    select f.scope, f.name
    from json_to_recordset(cast(:doc as json)) as d (scope text, name text)
    cross join lateral (
        select x.scope, x.name from oncely.flow_limit x
        where x.scope = d.scope and x.name = d.name limit 1
    ) f
),
held as materialized (
    select f.*, clock_timestamp() as now
    from wanted w cross join lateral (
        select x.* from oncely.flow_limit x where x.scope = w.scope and x.name = w.name
        for update skip locked
    ) f
)
select w.scope, w.name, h.name is not null, h.paused, h.concurrency, h.rate_count, h.rate_seconds,
    least(h.rate_count, h.tokens
        + greatest(0, extract(epoch from h.now - h.refilled_at)) * h.rate_count / h.rate_seconds
    )::float8,
    (extract(epoch from h.now) * 1000000)::bigint
from wanted w left join held h on h.scope = w.scope and h.name = w.name
