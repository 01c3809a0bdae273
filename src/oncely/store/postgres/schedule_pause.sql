update oncely.schedule set paused_at = coalesce(paused_at, clock_timestamp())
where name = :name
returning name
