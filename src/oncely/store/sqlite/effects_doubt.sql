-- The job is held for these.
insert into oncely_tally (name, kind, label, n)
select 'held', j.kind, '', 1 from oncely_job j where j.id = :id;

update oncely_effect set state = 'in_doubt'
where state = 'begun' and (job_id, name) in (
    select json_extract(d.value, '$.id'), json_extract(d.value, '$.name') from json_each(:doc) d
)
