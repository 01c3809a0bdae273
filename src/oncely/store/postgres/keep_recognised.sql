-- The ends that came too late: whose they were is known from what became of the execution.
insert into oncely.repeat (job_id, boundary, id, at, outcome, epoch, attempt, worker)
select i.id, 'delivery', i.epoch || '.' || i.nonce, clock_timestamp(), i.outcome, i.epoch,
    i.attempt, coalesce(e.worker, o.worker)
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    id uuid, epoch bigint, nonce bigint, outcome text, attempt smallint
)
join oncely.job j on j.id = i.id
left join oncely.execution e on e.job_id = i.id and e.epoch = i.epoch
left join oncely.outcome o on o.job_id = i.id and o.epoch = i.epoch
where :limit > (
    select count(*) from oncely.repeat r where r.job_id = i.id and r.boundary = 'delivery'
)
on conflict do nothing
