-- Take in jobs that differ in nothing but their payloads: due now, without keys and groups. All of
-- them are new; if one is not, it fails, and nothing is stored.
with counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'enqueued', cast(:kind as text), '', :count where oncely.wake(:queue) is not null
),
waiting as (
    insert into oncely.ready (queue, priority, due_at, id, attempts)
    select :queue, cast(:priority as smallint), statement_timestamp(),
        unnest(cast(:ids as uuid[])), 0
)
insert into oncely.job (id, kind, queue, payload, priority, created_at, due_at, traceparent)
select unnest(cast(:ids as uuid[])), :kind, :queue,
    json_array_elements(cast(cast(:payloads as text) as json)), cast(:priority as smallint),
    statement_timestamp(), statement_timestamp(), :traceparent
