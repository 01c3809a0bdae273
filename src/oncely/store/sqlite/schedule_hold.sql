-- Those that still stand as they were read; the transaction is the only one that writes.
select s.name
from json_each(:doc) d
join oncely_schedule s on s.name = json_extract(d.value, '$.name')
where s.definition = json_extract(d.value, '$.definition')
    and s.due_at = json_extract(d.value, '$.due_us')
    and (s.paused_at is not null) = json_extract(d.value, '$.paused')
