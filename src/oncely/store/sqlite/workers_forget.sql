delete from oncely_worker where seen_at < (select now from oncely_clock) - :gone_us
