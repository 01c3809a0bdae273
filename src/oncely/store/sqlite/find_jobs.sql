select s.job_id, s.state
from json_each(:doc) i join oncely_standing s on s.job_id = json_extract(i.value, '$.id')
