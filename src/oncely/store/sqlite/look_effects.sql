select e.job_id, e.name, e.verb, e.state, e.source, e.epoch, e.begun_at, e.ended_at, e.arguments,
    e.result
from json_each(:doc) i
join oncely_effect e on e.job_id = json_extract(i.value, '$.id')
order by e.job_id, e.begun_at, e.name
