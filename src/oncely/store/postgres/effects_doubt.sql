-- The job is held for these.
update oncely.effect e set state = 'in_doubt'
from json_to_recordset(cast(:doc as json)) as d (id uuid, name text)
where e.job_id = d.id and e.name = d.name and e.state = 'begun'
