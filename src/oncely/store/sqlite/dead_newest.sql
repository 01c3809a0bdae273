select o.job_id, j.kind, j.queue, json_extract(o.error, '$.type'),
    substr(json_extract(o.error, '$.message'), 1, 320), o.ended_at
from oncely_outcome o
join oncely_job j on j.id = o.job_id
where o.state = :state and o.state <> 'completed' and o.job_id < :before
order by o.job_id desc limit :limit
