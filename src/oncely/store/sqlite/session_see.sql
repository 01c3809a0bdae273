update oncely_session set seen_at = (select now from oncely_clock) where id = :id
