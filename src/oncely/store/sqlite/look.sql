select
    j.id, j.kind, j.queue, s.state,
    coalesce(o.attempt, s.attempts + case when s.state = 'running' then 1 else 0 end),
    j.max_attempts, j.idempotency_key, j.unique_key, j.group_key, j.tags,
    j.created_at, s.due_at, o.ended_at, o.started_at,
    j.payload, o.result, o.error, j.priority, j.timeout_seconds, o.epoch, o.worker
from json_each(:doc) i
join oncely_job j on j.id = json_extract(i.value, '$.id')
join oncely_standing s on s.job_id = j.id
left join oncely_outcome o on o.job_id = j.id
