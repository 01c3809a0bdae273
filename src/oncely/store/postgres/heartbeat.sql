-- Renew the lease of one execution, under its fence; when it runs out. One that a receiver has
-- accepted stands a while longer than that: see push_accept.
update oncely.lease l
set ack_until = case when l.ack_until is not null
        then clock_timestamp() + :lease_us * interval '1 microsecond' end,
    expires_at = clock_timestamp() + :lease_us * interval '1 microsecond'
        + case when l.ack_until is null then interval '0' else interval '120 seconds' end
where l.epoch = :epoch and l.nonce = :nonce and cast(:id as uuid) = any (l.ids)
returning (extract(epoch from coalesce(l.ack_until, l.expires_at)) * 1000000)::bigint
