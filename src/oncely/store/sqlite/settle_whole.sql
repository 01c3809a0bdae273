-- Every job of these leases was completed, and each lease holds all of its jobs: jobs leave a lease
-- and none is ever added, so it is enough to count them. `attempts` and `results` are in the order of
-- the lease; those that are all 1, or all null, are not sent.
select l.epoch, l.nonce
from json_each(:doc) d cross join oncely_lease l on l.epoch = json_extract(d.value, '$.epoch')
where l.nonce = json_extract(d.value, '$.nonce')
    and json_array_length(l.ids) = json_extract(d.value, '$.size');

insert into oncely_outcome (
    job_id, state, epoch, attempt, worker, started_at, ended_at, result
)
with attempted as materialized (
    select d.key as lease, a.key as n, a.value as attempt
    from json_each(:doc) d cross join json_each(d.value, '$.attempts') a
),
returned as materialized (
    select d.key as lease, r.key as n, r.value as result
    from json_each(:doc) d cross join json_each(d.value, '$.results') r
)
select m.value, 'completed', l.epoch, coalesce(a.attempt, 1), l.worker, l.claimed_at, c.now,
    coalesce(r.result, 'null')
from json_each(:doc) d cross join oncely_lease l on l.epoch = json_extract(d.value, '$.epoch')
cross join oncely_clock c cross join json_each(l.ids) m
left join attempted a on a.lease = d.key and a.n = m.key
left join returned r on r.lease = d.key and r.n = m.key
where l.nonce = json_extract(d.value, '$.nonce')
    and json_array_length(l.ids) = json_extract(d.value, '$.size');

insert into oncely_tally (name, kind, label, n)
select 'executions', k.key, 'completed', sum(k.value)
from json_each(:doc) d cross join oncely_lease l on l.epoch = json_extract(d.value, '$.epoch')
cross join json_each(d.value, '$.kinds') k
where l.nonce = json_extract(d.value, '$.nonce')
    and json_array_length(l.ids) = json_extract(d.value, '$.size')
group by k.key;

delete from oncely_unique_key
where (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from json_each(:doc) d cross join oncely_lease l on l.epoch = json_extract(d.value, '$.epoch')
    cross join json_each(l.ids) m cross join oncely_job j on j.id = m.value
    where json_extract(d.value, '$.is_unique')
        and l.nonce = json_extract(d.value, '$.nonce')
        and json_array_length(l.ids) = json_extract(d.value, '$.size')
        and j.unique_key is not null
);

delete from oncely_lease
where epoch in (
    select l.epoch
    from json_each(:doc) d cross join oncely_lease l on l.epoch = json_extract(d.value, '$.epoch')
    where l.nonce = json_extract(d.value, '$.nonce')
        and json_array_length(l.ids) = json_extract(d.value, '$.size')
)
