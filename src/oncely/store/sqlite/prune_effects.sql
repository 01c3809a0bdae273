-- The ledger of jobs that are gone. One of a job that is there stays, whatever its row says.
select (
    select count(*) from (
        select 1 from oncely_effect e
        where e.expires_at <= (select now from oncely_clock)
            and not exists (select 1 from oncely_job j where j.id = e.job_id)
        limit :limit
    ) x
), (
    select count(*) from (
        select 1 from oncely_resolution r
        where r.expires_at <= (select now from oncely_clock)
            and not exists (select 1 from oncely_job j where j.id = r.job_id)
        limit :limit
    ) x
);

delete from oncely_effect
where (job_id, name) in (
    select e.job_id, e.name from oncely_effect e
    where e.expires_at <= (select now from oncely_clock)
        and not exists (select 1 from oncely_job j where j.id = e.job_id)
    order by e.expires_at limit :limit
);

delete from oncely_resolution
where (job_id, name, at) in (
    select r.job_id, r.name, r.at from oncely_resolution r
    where r.expires_at <= (select now from oncely_clock)
        and not exists (select 1 from oncely_job j where j.id = r.job_id)
    order by r.expires_at limit :limit
)
