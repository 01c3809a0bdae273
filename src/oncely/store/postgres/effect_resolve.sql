-- A person's answer: it happened, with this result; or it did not, and the intent is gone.
with answered as (
    insert into oncely.resolution (job_id, name, at, happened, by_whom, note)
    values (cast(:id as uuid), :name, clock_timestamp(), cast(:happened as boolean), :by_whom,
        cast(:note as text))
),
cleared as (
    delete from oncely.effect
    where job_id = cast(:id as uuid) and name = :name and not cast(:happened as boolean)
)
update oncely.effect
set state = 'done', source = 'resolved', ended_at = clock_timestamp(),
    result = cast(cast(:result as text) as json)
where job_id = cast(:id as uuid) and name = :name and cast(:happened as boolean)
