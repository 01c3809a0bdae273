-- The lease ran out and the job was put back in line, but nobody has claimed it since: then it is
-- this execution's again. The row in ready, which is there only then, decides.
insert into oncely_lease (
    epoch, nonce, worker, queue, group_key, ids, started, claimed_at, expires_at
)
select e.epoch, e.nonce, e.worker, j.queue, j.group_key, json_array(e.job_id), 1, e.started_at,
    (select now from oncely_clock) + :lease_us
from oncely_execution e
cross join oncely_job j on j.id = e.job_id
cross join oncely_ready r
    on r.queue = j.queue and r.priority = j.priority
    and r.lane in ('', 'later', 'g:' || j.group_key) and r.due_at = e.due_at and r.id = j.id
where e.job_id = :id and e.epoch = :epoch and e.nonce = :nonce and e.outcome = 'crashed'
    and e.epoch = (select max(x.epoch) from oncely_execution x where x.job_id = e.job_id)
-- A lease of several jobs, of which another one was revived before.
on conflict (epoch) do update
set ids = json_insert(ids, '$[#]', :id), started = started + 1, expires_at = excluded.expires_at
where nonce = excluded.nonce;

delete from oncely_ready
where (queue, priority, lane, due_at, id) in (
    select j.queue, j.priority, r.lane, r.due_at, j.id
    from oncely_execution e
    cross join oncely_job j on j.id = e.job_id
    cross join oncely_ready r
        on r.queue = j.queue and r.priority = j.priority
        and r.lane in ('', 'later', 'g:' || j.group_key) and r.due_at = e.due_at and r.id = j.id
    where e.job_id = :id and e.epoch = :epoch and e.nonce = :nonce and e.outcome = 'crashed'
        and e.epoch = (select max(x.epoch) from oncely_execution x where x.job_id = e.job_id)
);

delete from oncely_execution
where job_id = :id and epoch = :epoch and nonce = :nonce and outcome = 'crashed' and exists (
    select 1 from oncely_lease l cross join json_each(l.ids) m
    where l.epoch = :epoch and m.value = :id
);

select l.expires_at from oncely_lease l cross join json_each(l.ids) m
where l.epoch = :epoch and l.nonce = :nonce and m.value = :id
