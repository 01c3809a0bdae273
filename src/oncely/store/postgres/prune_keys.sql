-- A repeat that was told while its job was being pruned goes with the job's key.
with old as (
    select queue, key from oncely.idempotency_key
    where expires_at <= (select clock_timestamp()) order by expires_at limit :limit
    for update skip locked
),
gone as (
    delete from oncely.idempotency_key k using old o where k.queue = o.queue and k.key = o.key
    returning k.job_id
),
repeats as (delete from oncely.repeat r using gone g where r.job_id = g.job_id)
select 1 from gone
