-- The ends that came too late: whose they were is known from what became of the execution.
insert into oncely_repeat (job_id, boundary, id, at, outcome, epoch, attempt, worker)
select j.id, 'delivery',
    json_extract(i.value, '$.epoch') || '.' || json_extract(i.value, '$.nonce'),
    (select now from oncely_clock), json_extract(i.value, '$.outcome'),
    json_extract(i.value, '$.epoch'), json_extract(i.value, '$.attempt'),
    coalesce(e.worker, o.worker)
from json_each(:doc) i
cross join oncely_job j on j.id = json_extract(i.value, '$.id')
left join oncely_execution e
    on e.job_id = j.id and e.epoch = json_extract(i.value, '$.epoch')
left join oncely_outcome o
    on o.job_id = j.id and o.epoch = json_extract(i.value, '$.epoch')
where :limit > (
    select count(*) from oncely_repeat r where r.job_id = j.id and r.boundary = 'delivery'
)
on conflict do nothing
