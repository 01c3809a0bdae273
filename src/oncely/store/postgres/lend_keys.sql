-- The call is remembered under the job that holds its unique key. Its key is a row of this very
-- transaction, which nobody else changes, so it stays where it is found.
with own as materialized (
    select k.at, i.holder_id
    from json_to_recordset(cast(cast(:doc as text) as json)) as i (
        id uuid, queue text, idempotency_key text, holder_id uuid
    )
    -- One by one, whatever was the size of the table when this was planned.
    cross join lateral (
        select x.ctid as at from oncely.idempotency_key x
        where x.queue = i.queue and x.key = i.idempotency_key and x.job_id = i.id offset 0
    ) k
)
update oncely.idempotency_key k set job_id = o.holder_id, lent = true from own o where k.ctid = o.at
