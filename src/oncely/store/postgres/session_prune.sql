delete from oncely.session
where seen_at <= clock_timestamp() - cast(:idle_us as bigint) * interval '1 microsecond'
    or created_at <= clock_timestamp() - cast(:life_us as bigint) * interval '1 microsecond'
