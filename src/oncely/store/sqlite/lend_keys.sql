-- The call is remembered under the job that holds its unique key.
update oncely_idempotency_key
set lent = 1, job_id = (
    select json_extract(i.value, '$.holder_id') from json_each(:doc) i
    where json_extract(i.value, '$.id') = oncely_idempotency_key.job_id
)
where (queue, key, job_id) in (
    select json_extract(i.value, '$.queue'), json_extract(i.value, '$.idempotency_key'),
        json_extract(i.value, '$.id')
    from json_each(:doc) i
)
