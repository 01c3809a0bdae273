-- Renew the lease of one execution, under its fence; when it runs out. One that a receiver has
-- accepted stands a while longer than that: see push_accept.
update oncely_lease
set ack_until = case when ack_until is not null
        then (select now from oncely_clock) + :lease_us end,
    expires_at = (select now from oncely_clock) + :lease_us
        + case when ack_until is null then 0 else 120000000 end
where epoch = :epoch and nonce = :nonce and exists (
    select 1 from json_each(oncely_lease.ids) m where m.value = :id
)
returning coalesce(ack_until, expires_at)
