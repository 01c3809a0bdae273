-- All leases of a worker at once. What is not in the answer is lost.
update oncely.lease set expires_at = clock_timestamp() + :lease_us * interval '1 microsecond'
where worker = :worker
returning epoch, array_to_json(ids)::text
