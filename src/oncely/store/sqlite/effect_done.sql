-- They happened. Evidence is not fenced: who comes too late to settle still knows this. What is
-- there already stays. A job that is gone has no ledger any more. What changes is counted before it
-- does: afterwards nothing tells it from what was there. The answer is for each whether its job is
-- still held, and what is known of it.
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
where state <> 'done';

select
    json_extract(d.value, '$.id'), json_extract(d.value, '$.name'), json_extract(d.value, '$.epoch'),
    (
        json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'),
        json_extract(d.value, '$.id')
    ) in (
        select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
        where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
    ),
    false, e.state, e.verb, e.fingerprint, e.epoch,
    ((select now from oncely_clock) - e.begun_at) / 1e6, e.source, e.result
from json_each(:doc) d
left join oncely_effect e
    on e.job_id = json_extract(d.value, '$.id') and e.name = json_extract(d.value, '$.name')
