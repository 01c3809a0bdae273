-- The lease ran out and the job was put back in line, but nobody has claimed it since: then it is
-- this execution's again. Who deletes the row in ready, a claim or this, decides.
with mine as materialized (
    select e.job_id, e.epoch, e.nonce, e.worker, e.started_at, e.due_at, j.queue, j.priority,
        j.group_key
    from oncely.execution e join oncely.job j on j.id = e.job_id
    where e.job_id = cast(:id as uuid) and e.epoch = :epoch and e.nonce = :nonce
        and e.outcome = 'crashed'
        and e.epoch = (select max(x.epoch) from oncely.execution x where x.job_id = e.job_id)
),
gone as (
    delete from oncely.ready r using mine m
    where r.queue = m.queue and r.priority = m.priority
        and r.lane = any (array['', 'later', 'g:' || m.group_key])
        and r.due_at = m.due_at and r.id = m.job_id
    returning r.id
),
forgotten as (
    delete from oncely.execution e using mine m, gone g
    where e.job_id = m.job_id and e.epoch = m.epoch
)
insert into oncely.lease as l (
    epoch, nonce, worker, queue, group_key, ids, started, claimed_at, expires_at
)
overriding system value
select m.epoch, m.nonce, m.worker, m.queue, m.group_key, array[m.job_id], 1, m.started_at,
    clock_timestamp() + :lease_us * interval '1 microsecond'
from mine m, gone g
-- A lease of several jobs, of which another one was revived before.
on conflict (epoch) do update
set ids = l.ids || excluded.ids, started = l.started + 1, expires_at = excluded.expires_at
where l.nonce = excluded.nonce
returning (extract(epoch from l.expires_at) * 1000000)::bigint
