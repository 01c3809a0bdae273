-- The first repeats of a job are kept; n counts those in the document.
insert into oncely_repeat (job_id, boundary, id, at, key)
select j.id, 'enqueue', json_extract(i.value, '$.id'), (select now from oncely_clock),
    json_extract(i.value, '$.key')
from json_each(:doc) i cross join oncely_job j on j.id = json_extract(i.value, '$.job_id')
where json_extract(i.value, '$.n') + (
    select count(*) from oncely_repeat r where r.job_id = j.id and r.boundary = 'enqueue'
) <= :limit
on conflict do nothing
