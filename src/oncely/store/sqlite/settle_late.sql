-- The lease ran out and the job was put back in line, but nobody has claimed it since: then its
-- end is accepted after all. The row in ready, which is there only then, decides.
insert into oncely_outcome (
    job_id, state, epoch, attempt, worker, started_at, ended_at, error, result
)
select
    e.job_id, json_extract(d.value, '$.state'), e.epoch, json_extract(d.value, '$.attempt'),
    e.worker, e.started_at, (select now from oncely_clock), json_extract(d.value, '$.error'),
    json_extract(d.value, '$.result')
from json_each(:doc) d
cross join oncely_execution e
    on e.job_id = json_extract(d.value, '$.id') and e.epoch = json_extract(d.value, '$.epoch')
    and e.nonce = json_extract(d.value, '$.nonce') and e.outcome in ('crashed', 'retried')
cross join oncely_job j on j.id = e.job_id
cross join oncely_ready r
    on r.queue = j.queue and r.priority = j.priority
    and r.lane in ('', 'later', 'g:' || j.group_key) and r.due_at = e.due_at and r.id = j.id
where json_extract(d.value, '$.state') is not null
    and e.epoch = (select max(x.epoch) from oncely_execution x where x.job_id = e.job_id);

insert into oncely_tally (name, kind, label, n)
select 'executions', j.kind, o.state, count(*)
from oncely_outcome o cross join oncely_job j on j.id = o.job_id
where o.rowid > case when changes() > 0 then last_insert_rowid() - changes() end
group by j.kind, o.state;

delete from oncely_unique_key
where (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from json_each(:doc) d
    cross join oncely_outcome o
        on o.job_id = json_extract(d.value, '$.id') and o.epoch = json_extract(d.value, '$.epoch')
        and o.state in ('completed', 'failed', 'cancelled')
    cross join oncely_job j on j.id = o.job_id
);

delete from oncely_ready
where (queue, priority, lane, due_at, id) in (
    select j.queue, j.priority, r.lane, r.due_at, j.id
    from json_each(:doc) d
    cross join oncely_outcome o
        on o.job_id = json_extract(d.value, '$.id') and o.epoch = json_extract(d.value, '$.epoch')
    cross join oncely_execution e on e.job_id = o.job_id and e.epoch = o.epoch
    cross join oncely_job j on j.id = o.job_id
    cross join oncely_ready r
        on r.queue = j.queue and r.priority = j.priority
        and r.lane in ('', 'later', 'g:' || j.group_key) and r.due_at = e.due_at and r.id = j.id
);

delete from oncely_execution
where (job_id, epoch) in (
    select o.job_id, o.epoch
    from json_each(:doc) d
    cross join oncely_outcome o
        on o.job_id = json_extract(d.value, '$.id') and o.epoch = json_extract(d.value, '$.epoch')
)
returning job_id, epoch, nonce
