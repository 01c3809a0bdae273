-- A row without a limit would only slow down those who look for limits.
delete from oncely_flow_limit
where scope = :scope and name = :name
    and not paused and concurrency is null and rate_count is null
