-- A person knows that it had no effect: as if it had never come.
delete from oncely.request
where scope = :scope and key = :key and state = 'in_flight' and held_until <= clock_timestamp()
returning owner
