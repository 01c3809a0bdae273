with old as (
    select queue, key from oncely.idempotency_key
    where expires_at <= (select clock_timestamp()) order by expires_at limit :limit
    for update skip locked
)
delete from oncely.idempotency_key k using old o where k.queue = o.queue and k.key = o.key
returning 1
