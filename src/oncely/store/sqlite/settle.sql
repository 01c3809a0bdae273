-- End executions of one lease. What the lease no longer holds is not in the answer, and nothing
-- is written for it.
select m.value from oncely_lease l, json_each(l.ids) m
where l.epoch = :epoch and l.nonce = :nonce
    and m.value in (select json_extract(d.value, '$.id') from json_each(:doc) d);

insert into oncely_outcome (
    job_id, state, epoch, attempt, worker, started_at, ended_at, error, result
)
select
    m.value, json_extract(d.value, '$.state'), l.epoch, json_extract(d.value, '$.attempt'),
    l.worker, l.claimed_at, (select now from oncely_clock),
    json_extract(d.value, '$.error'), json_extract(d.value, '$.result')
from oncely_lease l, json_each(l.ids) m
join json_each(:doc) d on json_extract(d.value, '$.id') = m.value
where l.epoch = :epoch and l.nonce = :nonce and json_extract(d.value, '$.state') is not null;

delete from oncely_unique_key
where (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from oncely_lease l, json_each(l.ids) m
    join json_each(:doc) d on json_extract(d.value, '$.id') = m.value
    join oncely_job j on j.id = m.value
    where l.epoch = :epoch and l.nonce = :nonce
        and json_extract(d.value, '$.state') in ('completed', 'failed', 'cancelled')
);

insert into oncely_execution (
    job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, error
)
select
    m.value, l.epoch, json_extract(d.value, '$.outcome'), json_extract(d.value, '$.attempt'),
    l.worker, l.claimed_at, c.now, c.now + json_extract(d.value, '$.delay_us'),
    json_extract(d.value, '$.attempts'), json_extract(d.value, '$.error')
from oncely_lease l, json_each(l.ids) m, oncely_clock c
join json_each(:doc) d on json_extract(d.value, '$.id') = m.value
where l.epoch = :epoch and l.nonce = :nonce and json_extract(d.value, '$.state') is null;

insert into oncely_ready (queue, priority, due_at, id, attempts)
select j.queue, j.priority, e.due_at, j.id, e.attempts
from oncely_lease l, json_each(l.ids) m
join oncely_execution e on e.job_id = m.value and e.epoch = l.epoch
join oncely_job j on j.id = m.value
where l.epoch = :epoch and l.nonce = :nonce;

update oncely_lease
set ids = (
    select json_group_array(m.value) from json_each(oncely_lease.ids) m
    where m.value not in (select json_extract(d.value, '$.id') from json_each(:doc) d)
)
where epoch = :epoch and nonce = :nonce;

delete from oncely_lease where epoch = :epoch and nonce = :nonce and json_array_length(ids) = 0
