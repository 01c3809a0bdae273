-- With its nonce an execution can still be ended late, while nobody has claimed the job again.
update oncely.execution e set nonce = d.nonce
from json_to_recordset(cast(:doc as json)) as d (id uuid, epoch bigint, nonce bigint)
where e.job_id = d.id and e.epoch = d.epoch
