-- What counts for the end of an execution of this job, whoever holds it.
select j.kind, j.queue, j.group_key, j.payload::text, s.attempts, s.crashes, s.defers, j.max_attempts,
    j.timeout_seconds, coalesce(date_part('epoch', clock_timestamp() - s.first_deferred_at), 0), q.retry::text,
    q.timeout_seconds, 0::float8, j.unique_key is not null, j.priority, j.traceparent,
    s.hand_backs
from oncely.job j
join oncely.standing s on s.job_id = j.id
left join oncely.queue q on q.name = j.queue
where j.id = cast(:id as uuid)
