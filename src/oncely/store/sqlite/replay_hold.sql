insert into oncely_unique_key (kind, key, job_id)
select j.kind, j.unique_key, j.id
from oncely_job j join oncely_outcome o on o.job_id = j.id and o.state = 'failed'
where j.id = :id and j.unique_key is not null
on conflict do nothing
