-- The keys of the newest jobs.
select j.kind, j.idempotency_key, j.unique_key,
    (extract(epoch from j.created_at) * 1000000)::bigint
from oncely.job j order by j.id desc limit :limit
