delete from oncely_session
where seen_at <= (select now from oncely_clock) - :idle_us
    or created_at <= (select now from oncely_clock) - :life_us
