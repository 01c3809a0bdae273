-- All leases of a worker at once. What is not in the answer is lost.
update oncely_lease set expires_at = (select now from oncely_clock) + :lease_us
where worker = :worker
returning epoch, ids
