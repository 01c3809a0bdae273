-- The ledger of a job begins anew. What was in it is remembered.
with gone as (
    delete from oncely.effect where job_id = cast(:id as uuid) returning name, state
),
answered as (
    insert into oncely.resolution (job_id, name, at, happened, by_whom, note, forgotten)
    select cast(:id as uuid), name, clock_timestamp(), state = 'done', :by_whom, null, true from gone
)
select name from gone order by name
