-- The call is remembered under the job that holds its unique key.
update oncely.idempotency_key k set job_id = i.holder_id, lent = true
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    id uuid, queue text, idempotency_key text, holder_id uuid
)
where k.queue = i.queue and k.key = i.idempotency_key and k.job_id = i.id
