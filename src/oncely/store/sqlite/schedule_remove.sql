delete from oncely_schedule
where name = :name and seen_at < (select now from oncely_clock) - :gone_us
returning name
