-- A repeat that was told while its job was being pruned goes with the job's key. Both are found by
-- arrays, not by joins: for a join the planner may read all keys and all repeats in order.
with gone as (
    delete from oncely.idempotency_key where ctid = any (array(
        select k.ctid from oncely.idempotency_key k
        where k.expires_at <= (select clock_timestamp()) order by k.expires_at limit :limit
        for update skip locked
    ))
    returning job_id
),
repeats as (
    delete from oncely.repeat r where r.job_id = any (array(select g.job_id from gone g))
)
select 1 from gone
