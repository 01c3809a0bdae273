update oncely_schedule set paused_at = coalesce(paused_at, (select now from oncely_clock))
where name = :name
returning name
