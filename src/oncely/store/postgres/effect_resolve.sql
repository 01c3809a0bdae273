-- A person's answer: it happened, with this result; or it did not, and the intent is gone.
with answered as (
    insert into oncely.resolution (job_id, name, at, happened, by_whom, note)
    values (cast(:id as uuid), :name, clock_timestamp(), cast(:happened as boolean), :by_whom,
        cast(:note as text))
    returning job_id, happened
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select x.name, j.kind, x.label, 1
    from answered a
    join oncely.job j on j.id = a.job_id
    cross join lateral (values
        ('resolved', case when a.happened then 'happened' else 'did_not_happen' end),
        ('effects', case when a.happened then 'resolved' end)
    ) x (name, label)
    where x.label is not null
),
cleared as (
    delete from oncely.effect
    where job_id = cast(:id as uuid) and name = :name and not cast(:happened as boolean)
)
update oncely.effect
set state = 'done', source = 'resolved', ended_at = clock_timestamp(),
    result = cast(cast(:result as text) as json)
where job_id = cast(:id as uuid) and name = :name and cast(:happened as boolean)
