-- Take in jobs that differ in nothing but their payloads and idempotency keys: due now, without
-- groups and unique keys. The keys first, in order, so that two batches cannot deadlock; then the
-- jobs whose keys were won. Of two jobs in the batch with one key the first wins.
with input as materialized (
    select d.id, d.payload, d.key, d.fingerprint, c.now
    from (select clock_timestamp() as now) c cross join rows from (
        unnest(cast(translate(cast(:ids as text), '[]"', '{}') as uuid[])),
        json_array_elements(cast(cast(:payloads as text) as json)),
        json_array_elements_text(cast(cast(:keys as text) as json)),
        unnest(cast(cast(:fingerprints as text) as text[]))
    ) d (id, payload, key, fingerprint)
),
remembered as (
    insert into oncely.idempotency_key (queue, key, job_id, fingerprint, created_at, lent)
    select :queue, i.key, i.id, i.fingerprint, i.now, false
    from input i
    order by i.key collate "C", i.id
    on conflict do nothing
    returning job_id
),
taken as (
    insert into oncely.job (
        id, kind, queue, payload, priority, created_at, due_at, idempotency_key, traceparent
    )
    select i.id, :kind, :queue, i.payload, :priority, i.now, i.now, i.key,
        cast(:traceparent as text)
    from input i
    -- Who has won its key is new: a job that was sent before has lost it to itself.
    where i.id in (select job_id from remembered)
    returning id, due_at
),
waiting as (
    insert into oncely.ready (queue, priority, due_at, id, attempts)
    select :queue, :priority, t.due_at, t.id, 0 from taken t
),
told as materialized (select count(*) as n, array_agg(t.id) as ids from taken t),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'enqueued', :kind, '', t.n from told t where t.n > 0
)
-- All of them is what is said by their number alone.
select t.n, case when t.n < :count then array_to_json(t.ids)::text end
from told t
where case when t.n > 0 then oncely.wake(:queue) else true end is not null
