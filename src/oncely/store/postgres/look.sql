select
    j.id::text, j.kind, j.queue, s.state,
    coalesce(o.attempt, s.attempts + case when s.state = 'running' then 1 else 0 end),
    j.max_attempts, j.idempotency_key, j.unique_key, j.group_key, j.tags::text,
    (extract(epoch from j.created_at) * 1000000)::bigint,
    (extract(epoch from s.due_at) * 1000000)::bigint,
    (extract(epoch from o.ended_at) * 1000000)::bigint,
    (extract(epoch from o.started_at) * 1000000)::bigint,
    j.payload::text, o.result::text, o.error::text, j.priority, j.timeout_seconds, o.epoch,
    o.worker
from json_to_recordset(cast(cast(:doc as text) as json)) as i (id uuid)
cross join lateral (select * from oncely.job j where j.id = i.id limit 1) j
cross join lateral (select * from oncely.standing s where s.job_id = j.id limit 1) s
left join lateral (select * from oncely.outcome o where o.job_id = j.id limit 1) o on true
