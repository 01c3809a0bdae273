delete from oncely_idempotency_key
where (queue, key) in (
    select json_extract(i.value, '$.queue'), json_extract(i.value, '$.idempotency_key')
    from json_each(:doc) i
) and expires_at <= (select now from oncely_clock)
