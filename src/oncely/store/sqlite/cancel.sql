-- The row in ready is the right to run the job: who deletes it, a claim or this, decides.
insert into oncely_outcome (job_id, state, attempt, ended_at)
select r.id, 'cancelled', r.attempts, (select now from oncely_clock)
from oncely_job j
join oncely_standing s on s.job_id = j.id
join oncely_ready r
    on r.queue = j.queue and r.priority = j.priority
    and r.lane in ('', 'later', 'g:' || j.group_key) and r.due_at = s.due_at and r.id = j.id
where j.id = :id;

delete from oncely_unique_key
where (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from oncely_job j
    join oncely_standing s on s.job_id = j.id
    join oncely_ready r
        on r.queue = j.queue and r.priority = j.priority
        and r.lane in ('', 'later', 'g:' || j.group_key) and r.due_at = s.due_at and r.id = j.id
    where j.id = :id
);

delete from oncely_ready
where (queue, priority, lane, due_at, id) in (
    select j.queue, j.priority, r.lane, r.due_at, j.id
    from oncely_job j
    join oncely_standing s on s.job_id = j.id
    join oncely_ready r
        on r.queue = j.queue and r.priority = j.priority
        and r.lane in ('', 'later', 'g:' || j.group_key) and r.due_at = s.due_at and r.id = j.id
    where j.id = :id
)
returning id
