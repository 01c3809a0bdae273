delete from oncely_idempotency_key
where (queue, key) in (
    select queue, key from oncely_idempotency_key
    where expires_at <= (select now from oncely_clock) order by expires_at limit :limit
)
returning 1
