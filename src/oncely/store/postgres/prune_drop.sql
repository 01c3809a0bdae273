-- Drop jobs that are over, and let the retention of their keys and of their ledger begin.
with old as materialized (
    -- a failed job leaves the dead-letter queue only now
    select o.job_id, o.state,
        case when o.state = 'failed' then clock_timestamp() else o.ended_at end
            + :key_us * interval '1 microsecond' as keys_expire_at
    from json_to_recordset(cast(cast(:doc as text) as json)) as i (id uuid)
    join oncely.outcome o on o.job_id = i.id
),
own_keys as (
    update oncely.idempotency_key k
    set state = o.state, expires_at = o.keys_expire_at
    from old o join oncely.job j on j.id = o.job_id
    where k.queue = j.queue and k.key = j.idempotency_key and k.job_id = j.id
),
lent_keys as (
    update oncely.idempotency_key k
    set state = o.state, expires_at = o.keys_expire_at
    from old o where k.lent and k.job_id = o.job_id
),
effects as (
    update oncely.effect e set expires_at = clock_timestamp() + :key_us * interval '1 microsecond'
    from old o where e.job_id = o.job_id
),
resolutions as (
    update oncely.resolution r
    set expires_at = clock_timestamp() + :key_us * interval '1 microsecond'
    from old o where r.job_id = o.job_id
),
repeats as (delete from oncely.repeat r using old o where r.job_id = o.job_id),
executions as (delete from oncely.execution e using old o where e.job_id = o.job_id),
jobs as (delete from oncely.job j using old o where j.id = o.job_id)
delete from oncely.outcome x using old o where x.job_id = o.job_id
