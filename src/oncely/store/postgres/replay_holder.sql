select u.job_id::text, j.kind, j.unique_key
from oncely.job j join oncely.unique_key u on u.kind = j.kind and u.key = j.unique_key
where j.id = cast(:id as uuid)
