-- What was recognised in a delivery: its end that came too late, and the effects that it found done
-- and did not do again. Each is counted once, and the first of a job are kept; n counts those of it
-- in the document. Whose they were is known from what became of the execution.
insert into oncely_tally (name, kind, label, n)
select 'deduplicated', j.kind, json_extract(i.value, '$.boundary'), count(*)
from json_each(:doc) i
cross join oncely_job j on j.id = json_extract(i.value, '$.job_id')
where not exists (
    select 1 from oncely_repeat r
    where r.job_id = j.id and r.boundary = json_extract(i.value, '$.boundary')
        and r.id = json_extract(i.value, '$.id')
)
group by 2, 3;

insert into oncely_repeat (job_id, boundary, id, at, outcome, epoch, attempt, worker)
select j.id, json_extract(i.value, '$.boundary'), json_extract(i.value, '$.id'),
    (select now from oncely_clock), json_extract(i.value, '$.outcome'),
    json_extract(i.value, '$.epoch'), json_extract(i.value, '$.attempt'),
    coalesce(e.worker, o.worker)
from json_each(:doc) i
cross join oncely_job j on j.id = json_extract(i.value, '$.job_id')
left join oncely_execution e
    on e.job_id = j.id and e.epoch = json_extract(i.value, '$.epoch')
left join oncely_outcome o
    on o.job_id = j.id and o.epoch = json_extract(i.value, '$.epoch')
where :limit >= json_extract(i.value, '$.n') + (
    select count(*) from oncely_repeat r
    where r.job_id = j.id and r.boundary = json_extract(i.value, '$.boundary')
)
on conflict do nothing
