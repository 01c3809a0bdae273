select e.job_id, e.epoch, e.attempt, e.outcome, e.worker, e.started_at, e.ended_at, e.error
from json_each(:doc) i
join oncely_execution e on e.job_id = json_extract(i.value, '$.id')
order by e.job_id, e.epoch
