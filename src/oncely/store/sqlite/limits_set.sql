-- Change what is named; how much of a rate is used up stays used up, so that a fleet that sets
-- its limits at every start does not get a new allowance each time.
insert into oncely_flow_limit (
    scope, name, paused, concurrency, rate_count, rate_seconds, tokens, refilled_at, since
)
select :scope, :name, coalesce(:paused, false), :concurrency, :rate_count, :rate_seconds,
    coalesce(:rate_count, 0), c.now, c.now
from oncely_clock c where true
on conflict (scope, name) do update set
    paused = coalesce(:paused, paused),
    concurrency = case when :set_concurrency then excluded.concurrency else concurrency end,
    rate_count = case when :set_rate then excluded.rate_count else rate_count end,
    rate_seconds = case when :set_rate then excluded.rate_seconds else rate_seconds end,
    tokens = case
        when not :set_rate then tokens
        when rate_count is null then excluded.tokens
        else min(excluded.tokens, tokens
            + max(0, excluded.refilled_at - refilled_at) / 1e6 * rate_count / rate_seconds)
    end,
    refilled_at = case when :set_rate then excluded.refilled_at else refilled_at end
