-- Drop jobs that are over, and let the retention of their keys begin: when the job ended or, for
-- a failed one, now that it leaves the dead-letter queue. The ledger's begins now.
update oncely_idempotency_key
set (state, expires_at) = (
    select o.state, :key_us
        + case when o.state = 'failed' then (select now from oncely_clock) else o.ended_at end
    from oncely_outcome o where o.job_id = oncely_idempotency_key.job_id
)
where (queue, key, job_id) in (
    select j.queue, j.idempotency_key, j.id
    from json_each(:doc) i cross join oncely_job j on j.id = json_extract(i.value, '$.id')
    where j.idempotency_key is not null
);

update oncely_idempotency_key
set (state, expires_at) = (
    select o.state, :key_us
        + case when o.state = 'failed' then (select now from oncely_clock) else o.ended_at end
    from oncely_outcome o where o.job_id = oncely_idempotency_key.job_id
)
where lent and job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

update oncely_effect set expires_at = (select now from oncely_clock) + :key_us
where job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

update oncely_resolution set expires_at = (select now from oncely_clock) + :key_us
where job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

delete from oncely_drill
where job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

delete from oncely_repeat
where job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

delete from oncely_execution
where job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

delete from oncely_job
where id in (select json_extract(i.value, '$.id') from json_each(:doc) i);

delete from oncely_outcome
where job_id in (select json_extract(i.value, '$.id') from json_each(:doc) i)
