-- End executions of one lease. What the lease no longer holds is not in the answer, and nothing
-- is written for it.
select json_extract(d.value, '$.id') from json_each(:doc) d
where json_extract(d.value, '$.id') in (
    select m.value from oncely_lease l, json_each(l.ids) m
    where l.epoch = :epoch and l.nonce = :nonce
);

insert into oncely_outcome (
    job_id, state, epoch, attempt, worker, started_at, ended_at, error, result
)
select
    json_extract(d.value, '$.id'), json_extract(d.value, '$.state'), l.epoch,
    json_extract(d.value, '$.attempt'), l.worker, l.claimed_at, c.now,
    json_extract(d.value, '$.error'), json_extract(d.value, '$.result')
from oncely_clock c cross join oncely_lease l cross join json_each(:doc) d
where l.epoch = :epoch and l.nonce = :nonce and json_extract(d.value, '$.state') is not null
    and json_extract(d.value, '$.id') in (
        select m.value from oncely_lease l, json_each(l.ids) m
        where l.epoch = :epoch and l.nonce = :nonce
    );

delete from oncely_unique_key
where (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from json_each(:doc) d cross join oncely_job j on j.id = json_extract(d.value, '$.id')
    where json_extract(d.value, '$.state') in ('completed', 'failed', 'cancelled')
        and j.unique_key is not null
        and j.id in (
            select m.value from oncely_lease l, json_each(l.ids) m
            where l.epoch = :epoch and l.nonce = :nonce
        )
);

insert into oncely_execution (
    job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, error
)
select
    json_extract(d.value, '$.id'), l.epoch, json_extract(d.value, '$.outcome'),
    json_extract(d.value, '$.attempt'), l.worker, l.claimed_at, c.now,
    c.now + json_extract(d.value, '$.delay_us'), json_extract(d.value, '$.attempts'),
    json_extract(d.value, '$.error')
from oncely_clock c cross join oncely_lease l cross join json_each(:doc) d
where l.epoch = :epoch and l.nonce = :nonce and json_extract(d.value, '$.state') is null
    and json_extract(d.value, '$.id') in (
        select m.value from oncely_lease l, json_each(l.ids) m
        where l.epoch = :epoch and l.nonce = :nonce
    );

insert into oncely_ready (queue, priority, due_at, id, attempts)
select j.queue, j.priority, e.due_at, j.id, e.attempts
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_execution e on e.job_id = m.value and e.epoch = l.epoch
cross join oncely_job j on j.id = m.value
where l.epoch = :epoch and l.nonce = :nonce;

update oncely_lease
set ids = (
    select json_group_array(m.value) from json_each(oncely_lease.ids) m
    where m.value not in (select json_extract(d.value, '$.id') from json_each(:doc) d)
)
where epoch = :epoch and nonce = :nonce;

delete from oncely_lease where epoch = :epoch and nonce = :nonce and json_array_length(ids) = 0
