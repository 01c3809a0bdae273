-- The keys of the newest jobs.
select j.kind, j.idempotency_key, j.unique_key, j.created_at
from oncely_job j order by j.id desc limit :limit
