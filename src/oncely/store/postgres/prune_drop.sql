-- Drop jobs that are over, and let the retention of their keys and of their ledger begin. What
-- hangs on them is found by arrays, not by joins: for a join the planner may read all there is.
with old as materialized (
    -- a failed job leaves the dead-letter queue only now
    select o.job_id, o.state,
        case when o.state = 'failed' then clock_timestamp() else o.ended_at end
            + :key_us * interval '1 microsecond' as keys_expire_at
    from json_to_recordset(cast(cast(:doc as text) as json)) as i (id uuid)
    cross join lateral (select * from oncely.outcome x where x.job_id = i.id offset 0) o
),
own as materialized (
    select k.at, o.state, o.keys_expire_at
    from old o
    cross join lateral (select * from oncely.job x where x.id = o.job_id offset 0) j
    cross join lateral (
        select x.ctid as at from oncely.idempotency_key x
        where x.queue = j.queue and x.key = j.idempotency_key and x.job_id = j.id offset 0
    ) k
),
own_keys as (
    -- Nobody else changes the key of a job that is over, so it stays where it is found.
    update oncely.idempotency_key k set state = o.state, expires_at = o.keys_expire_at
    from own o where k.ctid = o.at
),
lent_keys as (
    update oncely.idempotency_key k set state = o.state, expires_at = o.keys_expire_at
    from old o
    where k.lent and k.job_id = any (array(select x.job_id from old x)) and k.job_id = o.job_id
),
effects as (
    update oncely.effect set expires_at = clock_timestamp() + :key_us * interval '1 microsecond'
    where job_id = any (array(select o.job_id from old o))
),
resolutions as (
    update oncely.resolution set expires_at = clock_timestamp() + :key_us * interval '1 microsecond'
    where job_id = any (array(select o.job_id from old o))
),
drills as (delete from oncely.drill where job_id = any (array(select o.job_id from old o))),
repeats as (delete from oncely.repeat where job_id = any (array(select o.job_id from old o))),
executions as (delete from oncely.execution where job_id = any (array(select o.job_id from old o))),
jobs as (delete from oncely.job where id = any (array(select o.job_id from old o)))
delete from oncely.outcome where job_id = any (array(select o.job_id from old o))
