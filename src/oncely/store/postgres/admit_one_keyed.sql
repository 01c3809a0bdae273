-- Take in one job that is due now and has an idempotency key, but no unique one and no group. If the
-- key is known, nothing is written.
with remembered as (
    insert into oncely.idempotency_key (queue, key, job_id, fingerprint, created_at, lent)
    values (:queue, :key, :id, :fingerprint, statement_timestamp(), false)
    on conflict do nothing
    returning job_id
),
waiting as (
    insert into oncely.ready (queue, priority, due_at, id, attempts)
    select :queue, cast(:priority as smallint), statement_timestamp(), r.job_id, 0
    from remembered r
),
taken as (
    insert into oncely.job (
        id, kind, queue, payload, priority, created_at, due_at, idempotency_key, traceparent
    )
    select r.job_id, :kind, :queue, cast(:payload as json), cast(:priority as smallint),
        statement_timestamp(), statement_timestamp(), :key, cast(:traceparent as text)
    from remembered r
)
insert into oncely.tally (name, kind, label, n)
select 'enqueued', cast(:kind as text), '', 1 from remembered where oncely.wake(:queue) is not null
