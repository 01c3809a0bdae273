update oncely.ledger
set held_until = clock_timestamp() + cast(:lease_us as bigint) * interval '1 microsecond'
where name = :name and holder = :owner and state <> 'done'
