-- The job is held for these.
with counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'held', j.kind, '', 1 from oncely.job j where j.id = cast(:id as uuid)
)
update oncely.effect e set state = 'in_doubt'
from json_to_recordset(cast(:doc as json)) as d (id uuid, name text)
where e.job_id = d.id and e.name = d.name and e.state = 'begun'
