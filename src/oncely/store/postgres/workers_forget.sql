delete from oncely.worker where seen_at < clock_timestamp() - :gone_us * interval '1 microsecond'
