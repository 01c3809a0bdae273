select r.job_id, r.name, r.at, r.happened, r.by_whom, r.note, r.forgotten
from json_each(:doc) i
join oncely_resolution r on r.job_id = json_extract(i.value, '$.id')
order by r.job_id, r.at
