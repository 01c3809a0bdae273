-- Which of these executions have an end that was written.
select i.id::text, i.epoch, i.nonce
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    id uuid, epoch bigint, nonce bigint
)
where i.epoch = (select o.epoch from oncely.outcome o where o.job_id = i.id)
    or 'crashed' <> (
        select e.outcome from oncely.execution e where e.job_id = i.id and e.epoch = i.epoch
    )
