select j.id, j.payload
from json_each(:doc) i
join oncely_job j on j.id = json_extract(i.value, '$.id')
