-- What counts for the end of an execution of this job, whoever holds it.
select j.kind, j.queue, j.group_key, j.payload, s.attempts, s.crashes, s.defers, j.max_attempts,
    j.timeout_seconds, coalesce(((select now from oncely_clock) - s.first_deferred_at) / 1e6, 0.0),
    q.retry, q.timeout_seconds, 0.0, j.unique_key is not null, j.priority, j.traceparent,
    s.hand_backs
from oncely_job j
cross join oncely_standing s on s.job_id = j.id
left join oncely_queue q on q.name = j.queue
where j.id = :id
