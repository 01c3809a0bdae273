-- What never changes about a job.
select j.kind, j.queue, j.idempotency_key, j.unique_key,
    (extract(epoch from j.created_at) * 1000000)::bigint,
    (extract(epoch from j.due_at) * 1000000)::bigint
from oncely.job j where j.id = cast(:id as uuid)
