-- The ledger of jobs that are gone. One of a job that is there stays, whatever its row says.
with old as (
    select e.job_id, e.name from oncely.effect e
    where e.expires_at <= (select clock_timestamp())
        and (select j.id from oncely.job j where j.id = e.job_id) is null
    order by e.expires_at limit :limit
    for update skip locked
),
answers as (
    select r.job_id, r.name, r.at from oncely.resolution r
    where r.expires_at <= (select clock_timestamp())
        and (select j.id from oncely.job j where j.id = r.job_id) is null
    order by r.expires_at limit :limit
    for update skip locked
),
gone as (
    delete from oncely.effect e using old o where e.job_id = o.job_id and e.name = o.name
    returning 1
),
forgotten as (
    delete from oncely.resolution r using answers a
    where r.job_id = a.job_id and r.name = a.name and r.at = a.at
    returning 1
)
select (select count(*) from gone), (select count(*) from forgotten)
