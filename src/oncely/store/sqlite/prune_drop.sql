-- Drop jobs that are over, and let the retention of their keys begin.
update oncely_idempotency_key
set (state, expires_at) = (
    -- a failed job leaves the dead-letter queue only now
    select o.state, :key_us
        + case when o.state = 'failed' then (select now from oncely_clock) else o.ended_at end
    from oncely_outcome o
    where o.job_id = oncely_idempotency_key.job_id
)
where (queue, key) in (
    select j.queue, j.idempotency_key
    from json_each(:doc) i
    join oncely_job j on j.id = json_extract(i.value, '$.id')
    where j.idempotency_key is not null
    union
    select k.queue, k.key
    from json_each(:doc) i
    join oncely_idempotency_key k on k.job_id = json_extract(i.value, '$.id') and k.lent
) and job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

delete from oncely_execution
where job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

delete from oncely_job
where id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

delete from oncely_outcome
where job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i)
