-- The owner ended without a response: from now on nobody knows, and nobody owns it. A renewal that
-- is still under way changes nothing.
update oncely.request set owner = -1, held_until = clock_timestamp()
where scope = :scope and key = :key and owner = :owner and state = 'in_flight'
returning owner
