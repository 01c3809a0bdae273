-- Executions did not ask for these effects on record, although they began others. Kept and counted
-- the first time.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, name text, epoch bigint, begun json
    )
),
marked as (
    update oncely.effect e
    set renamed_at = clock_timestamp(), renamed_epoch = i.epoch, renamed_to = i.begun
    from (select * from input order by id, name) i
    where e.job_id = i.id and e.name = i.name and e.renamed_at is null
    returning e.job_id
)
insert into oncely.tally (name, kind, label, n)
select 'effect_renamed', j.kind, '', count(*)
from marked m
-- One by one, whatever was the size of the table when this was planned.
cross join lateral (select k.kind from oncely.job k where k.id = m.job_id offset 0) j
group by j.kind
