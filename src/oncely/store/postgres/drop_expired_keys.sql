delete from oncely.idempotency_key k
using json_to_recordset(cast(cast(:doc as text) as json)) as i (queue text, idempotency_key text)
where k.queue = i.queue and k.key = i.idempotency_key and k.expires_at <= clock_timestamp()
