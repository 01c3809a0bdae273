-- Change what is named; how much of a rate is used up stays used up, so that a fleet that sets
-- its limits at every start does not get a new allowance each time.
with changed as (
    insert into oncely.flow_limit as f (
        scope, name, paused, concurrency, rate_count, rate_seconds, tokens, refilled_at, since
    )
    select :scope, :name, coalesce(cast(:paused as boolean), false), cast(:concurrency as integer),
        cast(:rate_count as integer), cast(:rate_seconds as double precision),
        coalesce(cast(:rate_count as integer), 0), c.now, c.now
    from (select clock_timestamp() as now) c
    on conflict (scope, name) do update set
        paused = coalesce(cast(:paused as boolean), f.paused),
        concurrency = case when cast(:set_concurrency as boolean) then excluded.concurrency
            else f.concurrency end,
        rate_count = case when cast(:set_rate as boolean) then excluded.rate_count
            else f.rate_count end,
        rate_seconds = case when cast(:set_rate as boolean) then excluded.rate_seconds
            else f.rate_seconds end,
        tokens = case
            when not cast(:set_rate as boolean) then f.tokens
            when f.rate_count is null then excluded.tokens
            else least(excluded.tokens, f.tokens + greatest(0, extract(
                epoch from excluded.refilled_at - f.refilled_at)) * f.rate_count / f.rate_seconds)
        end,
        refilled_at = case when cast(:set_rate as boolean) then excluded.refilled_at
            else f.refilled_at end
    returning scope, name
)
-- Whoever rests for the queue may have something to do now.
select count(oncely.wake(c.name)) from changed c where c.scope = 'queue'
