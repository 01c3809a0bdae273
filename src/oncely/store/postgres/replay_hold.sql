insert into oncely.unique_key (kind, key, job_id)
select j.kind, j.unique_key, j.id
from oncely.job j join oncely.outcome o on o.job_id = j.id and o.state = 'failed'
where j.id = cast(:id as uuid) and j.unique_key is not null
on conflict do nothing
