-- Every job of one lease was completed, and the lease holds them all: jobs leave a lease and none is
-- ever added, so it is enough to count them. `attempts` and `results` are in the order of the lease;
-- those that are all 1, or all null, are not sent.
select epoch from oncely_lease where epoch = :epoch and nonce = :nonce and json_array_length(ids) = :size;

insert into oncely_outcome (
    job_id, state, epoch, attempt, worker, started_at, ended_at, result
)
with attempted as materialized (select a.key as n, a.value as attempt from json_each(:attempts) a),
returned as materialized (select r.key as n, r.value as result from json_each(:results) r)
select m.value, 'completed', l.epoch, coalesce(a.attempt, 1), l.worker, l.claimed_at, c.now,
    coalesce(r.result, 'null')
from oncely_lease l cross join oncely_clock c cross join json_each(l.ids) m
left join attempted a on a.n = m.key
left join returned r on r.n = m.key
where l.epoch = :epoch and l.nonce = :nonce and json_array_length(l.ids) = :size;

insert into oncely_tally (name, kind, label, n)
select 'executions', k.key, 'completed', k.value
from oncely_lease l cross join json_each(:kinds) k
where l.epoch = :epoch and l.nonce = :nonce and json_array_length(l.ids) = :size;

delete from oncely_unique_key
where :is_unique and (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from oncely_lease l cross join json_each(l.ids) m cross join oncely_job j on j.id = m.value
    where l.epoch = :epoch and l.nonce = :nonce and json_array_length(l.ids) = :size and j.unique_key is not null
);

delete from oncely_lease where epoch = :epoch and nonce = :nonce and json_array_length(ids) = :size
