-- In how many microseconds the next lease runs out. No index: it would make every renewal dearer, and
-- there are no more leases than jobs that run.
select min(l.expires_at) - (select now from oncely_clock) from oncely_lease l
