select
    j.id::text, j.kind, j.queue, s.state, j.payload::text, o.result::text, o.error::text,
    j.priority,
    coalesce(o.attempt, s.attempts + case when s.state = 'running' then 1 else 0 end),
    j.max_attempts, j.timeout_seconds,
    j.idempotency_key, j.unique_key, j.group_key, j.tags::text,
    (extract(epoch from j.created_at) * 1000000)::bigint,
    (extract(epoch from s.due_at) * 1000000)::bigint,
    (extract(epoch from o.ended_at) * 1000000)::bigint,
    o.epoch, o.worker, (extract(epoch from o.started_at) * 1000000)::bigint
from json_to_recordset(cast(cast(:doc as text) as json)) as i (id uuid)
join oncely.job j on j.id = i.id
join oncely.standing s on s.job_id = j.id
left join oncely.outcome o on o.job_id = j.id
