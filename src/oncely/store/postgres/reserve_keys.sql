-- Take idempotency keys of a call that is sent in parts, in order, before the call takes any unique
-- key. Its jobs follow in other statements.
insert into oncely.idempotency_key (queue, key, job_id, fingerprint, created_at, lent)
select i.queue, i.idempotency_key, coalesce(u.job_id, i.id), i.fingerprint, clock_timestamp(),
    u.job_id is not null
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    id uuid, kind text, queue text, idempotency_key text, fingerprint text, unique_key text
)
-- One by one, whatever was the size of the table when this was planned.
left join lateral (
    select k.job_id from oncely.unique_key k
    where k.kind = i.kind and k.key = i.unique_key offset 0
) u on true
order by i.queue collate "C", i.idempotency_key collate "C"
on conflict do nothing
