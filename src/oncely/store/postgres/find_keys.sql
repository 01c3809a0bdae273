select i.id::text, k.job_id::text, k.fingerprint, coalesce(s.state, k.state),
    coalesce(k.expires_at <= clock_timestamp(), false),
    k.lent and exists (
        select from oncely.unique_key u
        where u.kind = i.kind and u.key = i.unique_key and u.job_id = k.job_id
    )
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    id uuid, kind text, queue text, idempotency_key text, unique_key text
)
join oncely.idempotency_key k on k.queue = i.queue and k.key = i.idempotency_key
left join oncely.standing s on s.job_id = k.job_id
