-- The ledger of jobs that are gone. One of a job that is there stays, whatever its row says.
with gone as (
    delete from oncely.effect where ctid = any (array(
        select e.ctid from oncely.effect e
        where e.expires_at <= (select clock_timestamp())
            and (select j.id from oncely.job j where j.id = e.job_id) is null
        order by e.expires_at limit :limit
        for update skip locked
    ))
    returning 1
),
forgotten as (
    delete from oncely.resolution where ctid = any (array(
        select r.ctid from oncely.resolution r
        where r.expires_at <= (select clock_timestamp())
            and (select j.id from oncely.job j where j.id = r.job_id) is null
        order by r.expires_at limit :limit
        for update skip locked
    ))
    returning 1
)
select (select count(*) from gone), (select count(*) from forgotten)
