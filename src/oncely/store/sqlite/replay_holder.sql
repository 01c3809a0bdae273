select u.job_id, j.kind, j.unique_key
from oncely_job j
join oncely_outcome o on o.job_id = j.id and o.state = 'failed'
left join oncely_unique_key u on u.kind = j.kind and u.key = j.unique_key
where j.id = :id and j.unique_key is not null
