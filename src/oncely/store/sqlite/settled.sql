-- Which of these executions have an end that was written.
select json_extract(i.value, '$.id'), json_extract(i.value, '$.epoch'), json_extract(i.value, '$.nonce')
from json_each(:doc) i
where exists (
    select 1 from oncely_outcome o
    where o.job_id = json_extract(i.value, '$.id') and o.epoch = json_extract(i.value, '$.epoch')
) or exists (
    select 1 from oncely_execution e
    where e.job_id = json_extract(i.value, '$.id') and e.epoch = json_extract(i.value, '$.epoch')
        and e.outcome <> 'crashed'
)
