delete from oncely.schedule
where name = :name and seen_at < clock_timestamp() - :gone_us * interval '1 microsecond'
returning name
