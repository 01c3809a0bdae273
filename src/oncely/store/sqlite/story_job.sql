-- What never changes about a job.
select j.kind, j.queue, j.idempotency_key, j.unique_key, j.created_at, j.due_at
from oncely_job j where j.id = :id
