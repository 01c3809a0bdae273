select json_extract(i.value, '$.id'), u.job_id, s.state
from json_each(:doc) i
join oncely_unique_key u
    on u.kind = json_extract(i.value, '$.kind') and u.key = json_extract(i.value, '$.unique_key')
join oncely_standing s on s.job_id = u.job_id
