update oncely.request
set held_until = clock_timestamp() + :hold_us * interval '1 microsecond',
    expires_at = clock_timestamp() + :keep_us * interval '1 microsecond'
where scope = :scope and key = :key and owner = :owner and state = 'in_flight'
returning owner
