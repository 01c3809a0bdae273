-- Take in a batch of jobs: all its keys first, in order, so that two batches cannot deadlock; then
-- the jobs whose keys were won. Of two jobs in the batch with one key the first wins. In a caller's
-- transaction `store` is the id of the store: on another one nothing is written, and the answer is a
-- row of nulls.
with here as materialized (
    select cast(:store as text) is null or exists (
        select from oncely.store s where s.id = cast(cast(:store as text) as uuid)
    ) as reached
),
input as materialized (
    select
        d.*,
        c.now,
        case
            when d.run_at_us is null then c.now + d.delay_us * interval '1 microsecond'
            -- in two steps, for an interval is multiplied as a float of 53 bits
            else timestamptz 'epoch' + d.run_at_us / 1000000 * interval '1 second'
                + d.run_at_us % 1000000 * interval '1 microsecond'
        end as due_at
    from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, kind text, queue text, payload text, priority smallint, delay_us bigint,
        run_at_us bigint, idempotency_key text, fingerprint text, unique_key text,
        group_key text, max_attempts smallint, timeout_seconds double precision, tags text,
        traceparent text
    ), (select clock_timestamp() as now) c
    where (select reached from here)
),
remembered as (
    insert into oncely.idempotency_key (queue, key, job_id, fingerprint, created_at, lent)
    select i.queue, i.idempotency_key, coalesce(u.job_id, i.id), i.fingerprint, i.now,
        u.job_id is not null
    from input i
    -- One by one, here and below, whatever was the size of the table when this was planned.
    left join lateral (
        select k.job_id from oncely.unique_key k
        where k.kind = i.kind and k.key = i.unique_key offset 0
    ) u on true
    where i.idempotency_key is not null
    order by i.queue collate "C", i.idempotency_key collate "C", i.id
    on conflict do nothing
    returning job_id
),
held as (
    insert into oncely.unique_key (kind, key, job_id)
    select i.kind, i.unique_key, i.id
    from input i
    -- The count runs the other insert to its end first, whatever the order of the input: else two
    -- batches could take the two kinds of keys in opposite orders, and wait for each other.
    where (select count(*) from remembered) >= 0 and i.unique_key is not null and (
        -- sent before, with the answer lost: the job may have ended since, and hold nothing
        select j.id from oncely.job j where j.id = i.id
    ) is null and (
        i.idempotency_key is null
        or i.id in (select job_id from remembered)
        or i.id = (
            select k.job_id from oncely.idempotency_key k
            where k.queue = i.queue and k.key = i.idempotency_key
        )
    )
    order by i.kind collate "C", i.unique_key collate "C", i.id
    on conflict do nothing
    returning job_id
),
taken as (
    insert into oncely.job (
        id, kind, queue, payload, priority, created_at, due_at, idempotency_key, unique_key,
        group_key, max_attempts, timeout_seconds, tags, traceparent
    )
    select
        i.id, i.kind, i.queue, i.payload::json, i.priority, i.now, i.due_at, i.idempotency_key,
        i.unique_key, i.group_key, i.max_attempts, i.timeout_seconds, i.tags::json,
        i.traceparent
    from input i
    where
        case
            when i.unique_key is not null then i.id in (select job_id from held)
            when i.idempotency_key is not null then
                i.id in (select job_id from remembered)
                -- reserved by an earlier statement of a long call
                or i.id = (
                    select k.job_id from oncely.idempotency_key k
                    where k.queue = i.queue and k.key = i.idempotency_key
                )
            else true
        end
    on conflict do nothing
    returning id, kind, queue, priority, due_at, created_at, group_key
),
waiting as (
    insert into oncely.ready (queue, priority, lane, due_at, id, attempts)
    select queue, priority,
        case when group_key is null then '' when due_at > created_at then 'later'
            else 'g:' || group_key end,
        due_at, id, 0
    from taken
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'enqueued', kind, '', count(*) from taken group by kind
),
woken as (
    select count(oncely.wake(t.queue)) as queues
    from (select distinct queue from taken where due_at <= created_at) t
)
select id::text, due_at > created_at from taken where (select queues from woken) >= 0
union all
select null, null from here where not reached
