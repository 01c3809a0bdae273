-- With its nonce an execution can still be ended late, while nobody has claimed the job again.
-- Found by an array, not only by the join: for that the planner may read all executions in order.
with input as materialized (
    select * from json_to_recordset(cast(:doc as json)) as d (id uuid, epoch bigint, nonce bigint)
)
update oncely.execution e set nonce = i.nonce from input i
where e.job_id = any (array(select x.id from input x)) and e.job_id = i.id and e.epoch = i.epoch
