delete from oncely.idempotency_key where ctid = any (array(
    select k.at
    from json_to_recordset(cast(cast(:doc as text) as json)) as i (queue text, idempotency_key text)
    -- One by one, whatever was the size of the table when this was planned.
    cross join lateral (
        select x.ctid as at from oncely.idempotency_key x
        where x.queue = i.queue and x.key = i.idempotency_key
            and x.expires_at <= (select clock_timestamp()) offset 0
    ) k
))
