select i.id::text, k.job_id::text, k.fingerprint, coalesce(s.state, k.state),
    coalesce(k.expires_at <= clock_timestamp(), false),
    -- not by exists, for which the planner may read the whole table into a hash
    k.lent and coalesce(k.job_id = (
        select u.job_id from oncely.unique_key u where u.kind = i.kind and u.key = i.unique_key
    ), false)
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    id uuid, kind text, queue text, idempotency_key text, unique_key text
)
cross join lateral (
    select * from oncely.idempotency_key k
    where k.queue = i.queue and k.key = i.idempotency_key limit 1
) k
left join lateral (
    select s.state from oncely.standing s where s.job_id = k.job_id limit 1
) s on true
