-- What counts for the end of an execution of this job, whoever holds it.
select j.kind, j.queue, j.group_key, j.payload::text, s.attempts, s.crashes, s.defers, j.max_attempts,
    j.timeout_seconds, extract(epoch from clock_timestamp() - j.created_at)::float8, q.retry::text,
    q.timeout_seconds, 0::float8, j.unique_key is not null
from oncely.job j
join oncely.standing s on s.job_id = j.id
left join oncely.queue q on q.name = j.queue
where j.id = cast(:id as uuid)
