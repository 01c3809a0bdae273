-- Take a running job out of its lease and end it: whatever its execution still writes is refused.
insert into oncely_outcome (job_id, state, epoch, attempt, worker, started_at, ended_at)
select m.value, 'cancelled', l.epoch, s.attempts + 1, l.worker, l.claimed_at,
    (select now from oncely_clock)
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_standing s on s.job_id = m.value
where m.value = :id;

insert into oncely_tally (name, kind, label, n)
select 'executions', j.kind, 'cancelled', 1 from oncely_job j where j.id = :id and changes() > 0;

delete from oncely_unique_key
where (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from oncely_lease l cross join json_each(l.ids) m cross join oncely_job j on j.id = m.value
    where m.value = :id
);

select m.value from oncely_lease l cross join json_each(l.ids) m where m.value = :id;

update oncely_lease
set (ids, started) = (
    select json_group_array(m.value), coalesce(sum(m.key < oncely_lease.started), 0)
    from json_each(oncely_lease.ids) m where m.value <> :id
)
where epoch in (
    select l.epoch from oncely_lease l cross join json_each(l.ids) m where m.value = :id
);

delete from oncely_lease where json_array_length(ids) = 0
