-- They happened. Evidence is not fenced: who comes too late to settle still knows this. What is
-- there already stays. A job that is gone has no ledger any more. What changes is counted before it
-- does: afterwards nothing tells it from what was there.
insert into oncely_tally (name, kind, label, n)
select 'effects', j.kind, json_extract(d.value, '$.source'), count(*)
from json_each(:doc) d cross join oncely_job j on j.id = json_extract(d.value, '$.id')
where not exists (
    select 1 from oncely_effect e
    where e.job_id = j.id and e.name = json_extract(d.value, '$.name') and e.state = 'done'
)
group by 2, 3;

insert into oncely_effect (
    job_id, name, verb, state, fingerprint, arguments, epoch, begun_at, ended_at, source, result
)
select j.id, json_extract(d.value, '$.name'), json_extract(d.value, '$.verb'), 'done',
    json_extract(d.value, '$.fingerprint'), json_extract(d.value, '$.arguments'),
    json_extract(d.value, '$.epoch'), c.now, c.now, json_extract(d.value, '$.source'),
    json_extract(d.value, '$.result')
from oncely_clock c cross join json_each(:doc) d
cross join oncely_job j on j.id = json_extract(d.value, '$.id')
where true
on conflict (job_id, name) do update
set state = 'done', ended_at = excluded.ended_at, source = excluded.source, result = excluded.result
where state <> 'done'
