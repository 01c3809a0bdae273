-- Executions did not ask for these effects on record, although they began others. Kept and counted
-- the first time.
insert into oncely_tally (name, kind, label, n)
select 'effect_renamed', j.kind, '', count(*)
from json_each(:doc) d
cross join oncely_effect e
    on e.job_id = json_extract(d.value, '$.id') and e.name = json_extract(d.value, '$.name')
cross join oncely_job j on j.id = e.job_id
where e.renamed_at is null
group by 2;

update oncely_effect
set (renamed_at, renamed_epoch, renamed_to) = (
    select c.now, json_extract(d.value, '$.epoch'), json_extract(d.value, '$.begun')
    from oncely_clock c cross join json_each(:doc) d
    where json_extract(d.value, '$.id') = oncely_effect.job_id
        and json_extract(d.value, '$.name') = oncely_effect.name
)
where renamed_at is null and (job_id, name) in (
    select json_extract(d.value, '$.id'), json_extract(d.value, '$.name') from json_each(:doc) d
)
