insert into oncely_tally (name, kind, label, n)
select json_extract(i.value, '$.name'), json_extract(i.value, '$.kind'),
    json_extract(i.value, '$.label'), json_extract(i.value, '$.n')
from json_each(:doc) i
