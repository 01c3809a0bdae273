-- For each whether its job is still held, and what is known of it.
select
    json_extract(d.value, '$.id'), json_extract(d.value, '$.name'), json_extract(d.value, '$.epoch'),
    json_extract(d.value, '$.nonce'),
    (
        json_extract(d.value, '$.epoch'), json_extract(d.value, '$.nonce'),
        json_extract(d.value, '$.id')
    ) in (
        select l.epoch, l.nonce, m.value from oncely_lease l, json_each(l.ids) m
        where l.epoch in (select json_extract(x.value, '$.epoch') from json_each(:doc) x)
    ),
    e.state, e.verb, e.fingerprint, e.epoch,
    ((select now from oncely_clock) - e.begun_at) / 1e6, e.source, e.result
from json_each(:doc) d
left join oncely_effect e
    on e.job_id = json_extract(d.value, '$.id') and e.name = json_extract(d.value, '$.name')
