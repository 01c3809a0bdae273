-- Take idempotency keys of a call that is sent in parts, before the call takes any unique key. Its
-- jobs follow in other statements.
insert into oncely_idempotency_key (queue, key, job_id, fingerprint, created_at, lent)
select
    json_extract(d.value, '$.queue'), json_extract(d.value, '$.idempotency_key'),
    coalesce(u.job_id, json_extract(d.value, '$.id')), json_extract(d.value, '$.fingerprint'),
    (select now from oncely_clock), u.job_id is not null
from json_each(:doc) d
left join oncely_unique_key u
    on u.kind = json_extract(d.value, '$.kind') and u.key = json_extract(d.value, '$.unique_key')
-- without it SQLite takes "on conflict" for a join's condition
where true
on conflict do nothing
