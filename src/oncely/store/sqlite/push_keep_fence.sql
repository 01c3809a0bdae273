-- With its nonce an execution can still be ended late, while nobody has claimed the job again.
update oncely_execution
set nonce = (
    select json_extract(d.value, '$.nonce') from json_each(:doc) d
    where json_extract(d.value, '$.id') = job_id and json_extract(d.value, '$.epoch') = epoch
)
where (job_id, epoch) in (
    select json_extract(d.value, '$.id'), json_extract(d.value, '$.epoch') from json_each(:doc) d
)
