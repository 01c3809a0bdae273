-- The job is held for these.
update oncely_effect set state = 'in_doubt'
where state = 'begun' and (job_id, name) in (
    select json_extract(d.value, '$.id'), json_extract(d.value, '$.name') from json_each(:doc) d
)
