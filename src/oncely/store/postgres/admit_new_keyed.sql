-- Take in jobs that differ in nothing but their payloads and idempotency keys: due now, without
-- groups and unique keys. All keys are new; if one is not, it fails, and before anything else was
-- written. The keys are taken in order, so that two batches cannot deadlock.
with counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'enqueued', cast(:kind as text), '', :count where oncely.wake(:queue) is not null
),
waiting as (
    insert into oncely.ready (queue, priority, due_at, id, attempts)
    select :queue, cast(:priority as smallint), statement_timestamp(),
        unnest(cast(:ids as uuid[])), 0
),
taken as (
    insert into oncely.job (
        id, kind, queue, payload, priority, created_at, due_at, idempotency_key, traceparent
    )
    select unnest(cast(:ids as uuid[])), :kind, :queue,
        json_array_elements(cast(cast(:payloads as text) as json)), cast(:priority as smallint),
        statement_timestamp(), statement_timestamp(), unnest(cast(:keys as text[])), :traceparent
)
insert into oncely.idempotency_key (queue, key, job_id, fingerprint, created_at, lent)
select :queue, k.key, k.id, k.fingerprint, statement_timestamp(), false
from (
    select unnest(cast(:keys as text[])) as key, unnest(cast(:ids as uuid[])) as id,
        unnest(cast(:fingerprints as text[])) as fingerprint
) k
order by k.key collate "C"
