select u.job_id::text, j.kind, j.unique_key
from oncely.job j
join oncely.outcome o on o.job_id = j.id and o.state = 'failed'
left join oncely.unique_key u on u.kind = j.kind and u.key = j.unique_key
where j.id = cast(:id as uuid) and j.unique_key is not null
