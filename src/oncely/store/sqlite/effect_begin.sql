-- Write down intents, each under its fence. For each that will not be: whether the job is still
-- held, and what was there before. One that will be is in the answer if earlier executions of its job
-- have other effects on record, with their names.
select
    json_extract(d.value, '$.id'), json_extract(d.value, '$.name'), json_extract(d.value, '$.epoch'),
    json_extract(d.value, '$.nonce'),
    (
        json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'),
        json_extract(d.value, '$.id')
    ) in (
        select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
        where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
    ) as held,
    e.state, e.verb, e.fingerprint, e.epoch, ((select now from oncely_clock) - e.begun_at) / 1e6,
    e.source, e.result,
    case when e.state is null or (e.state = 'begun' and e.epoch = json_extract(d.value, '$.epoch'))
    then (
        select nullif(json_group_array(o.name), '[]') from oncely_effect o
        where o.job_id = json_extract(d.value, '$.id')
            and o.name <> json_extract(d.value, '$.name')
            and o.epoch <> json_extract(d.value, '$.epoch')
    ) end as earlier
from json_each(:doc) d
left join oncely_effect e
    on e.job_id = json_extract(d.value, '$.id') and e.name = json_extract(d.value, '$.name')
where not held or e.state is not null or earlier is not null;

insert into oncely_effect (job_id, name, verb, state, fingerprint, arguments, epoch, begun_at)
select
    json_extract(d.value, '$.id'), json_extract(d.value, '$.name'), json_extract(d.value, '$.verb'),
    'begun', json_extract(d.value, '$.fingerprint'), json_extract(d.value, '$.arguments'),
    json_extract(d.value, '$.epoch'), c.now
from oncely_clock c cross join json_each(:doc) d
where (
    json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'), json_extract(d.value, '$.id')
) in (
    select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
    where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
)
on conflict do nothing
