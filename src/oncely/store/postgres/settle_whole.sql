-- Every job of these leases was completed, and each lease holds all of its jobs: jobs leave a lease
-- and none is ever added, so it is enough to count them. `attempts` and `results` are in the order of
-- the lease; those that are all 1, or all null, are not sent.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        epoch bigint, nonce bigint, size integer, attempts smallint[], results text[], kinds json,
        is_unique boolean
    )
),
gone as (
    delete from oncely.lease l
    where l.epoch = any (array(select i.epoch from input i))
        and (l.epoch, l.nonce, cardinality(l.ids)) in (
            select i.epoch, i.nonce, i.size from input i
        )
    returning l.epoch, l.nonce, l.ids, l.worker, l.claimed_at
),
over as (
    select g.*, i.attempts, i.results, i.kinds, i.is_unique
    from gone g join input i on i.epoch = g.epoch and i.nonce = g.nonce
),
ended as (
    insert into oncely.outcome (
        job_id, state, epoch, attempt, worker, started_at, ended_at, result
    )
    select m.id, 'completed', o.epoch, coalesce(m.attempt, 1), o.worker, o.claimed_at, c.now,
        coalesce(m.result, 'null')::json
    from over o cross join (select clock_timestamp() as now) c
    cross join lateral unnest(o.ids, o.attempts, o.results) m (id, attempt, result)
),
freed as (
    delete from oncely.unique_key where ctid = any (array(
        select u.at
        from over o cross join lateral unnest(o.ids) m (id)
        -- One by one, whatever was the size of the tables when this was planned.
        cross join lateral (select * from oncely.job k where k.id = m.id offset 0) j
        cross join lateral (
            select k.ctid as at from oncely.unique_key k
            where k.kind = j.kind and k.key = j.unique_key and k.job_id = j.id offset 0
        ) u
        where o.is_unique
    ))
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'executions', k.key, 'completed', sum(k.value::bigint)
    from over o cross join lateral json_each_text(o.kinds) k
    group by k.key
),
told as (select count(oncely.tell_waiters(g.ids)) as n from gone g)
select epoch, nonce from gone where (select n from told) >= 0
