update oncely_request
set held_until = (select now from oncely_clock) + :hold_us,
    expires_at = (select now from oncely_clock) + :keep_us
where scope = :scope and key = :key and owner = :owner and state = 'in_flight'
returning owner
