-- In how many microseconds the next lease runs out. No index: it would make every renewal dearer, and
-- there are no more leases than jobs that run.
select (extract(epoch from min(greatest(l.expires_at, k.expires_at)) - clock_timestamp()) * 1000000)::bigint
from oncely.lease l left join oncely.locked_lease k on k.epoch = l.epoch and k.nonce = l.nonce
