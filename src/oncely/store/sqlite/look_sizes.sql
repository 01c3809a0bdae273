-- How large jobs are, without reading them out.
select j.id, length(cast(j.payload as blob)) + coalesce(length(cast(o.result as blob)), 0)
from json_each(:doc) i
join oncely_job j on j.id = json_extract(i.value, '$.id')
left join oncely_outcome o on o.job_id = j.id
