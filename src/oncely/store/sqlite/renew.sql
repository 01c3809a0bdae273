-- Renew the leases that a worker knows of. One that has run out is not revived. What is not in the
-- answer is lost. There are no locks on rows: whoever writes keeps all others waiting, so no lease is
-- locked.
update oncely_lease set expires_at = (select now from oncely_clock) + :lease_us
where worker = :worker and expires_at > (select now from oncely_clock) and (epoch, nonce) in (
    select json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce') from json_each(:doc) d
)
returning epoch, nonce, ids
