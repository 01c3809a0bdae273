-- Take in jobs that differ in nothing but their payloads: due now, without keys and groups.
with clock as materialized (select clock_timestamp() as now),
taken as (
    insert into oncely.job (
        id, kind, queue, payload, priority, created_at, due_at, traceparent
    )
    select d.id, :kind, :queue, d.payload, :priority, c.now, c.now, cast(:traceparent as text)
    from clock c cross join rows from (
        unnest(cast(translate(cast(:ids as text), '[]"', '{}') as uuid[])),
        json_array_elements(cast(cast(:payloads as text) as json))
    ) d (id, payload)
    on conflict do nothing
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
