-- The ticks of the pause are not made up for.
update oncely.schedule
set due_at = case when paused_at is null then due_at else clock_timestamp() end, paused_at = null
where name = :name
returning name
