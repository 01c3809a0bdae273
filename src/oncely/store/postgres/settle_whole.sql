-- Every job of one lease was completed, and the lease holds them all: jobs leave a lease and none is
-- ever added, so it is enough to count them. `attempts` and `results` are in the order of the lease;
-- those that are all 1, or all null, are not sent.
with gone as (
    delete from oncely.lease l
    where l.epoch = :epoch and l.nonce = :nonce
        and cardinality(l.ids) = :size
    returning l.epoch, l.ids, l.worker, l.claimed_at
),
ended as (
    insert into oncely.outcome (
        job_id, state, epoch, attempt, worker, started_at, ended_at, result
    )
    select m.id, 'completed', g.epoch, coalesce(m.attempt, 1), g.worker, g.claimed_at, c.now,
        coalesce(m.result, 'null')::json
    from gone g cross join (select clock_timestamp() as now) c cross join lateral rows from (
        unnest(g.ids),
        unnest(cast(translate(cast(:attempts as text), '[]', '{}') as smallint[])),
        json_array_elements_text(cast(cast(:results as text) as json))
    ) m (id, attempt, result)
),
freed as (
    delete from oncely.unique_key where ctid = any (array(
        select u.at
        from gone g cross join lateral unnest(g.ids) m (id)
        -- One by one, whatever was the size of the tables when this was planned.
        cross join lateral (select * from oncely.job k where k.id = m.id offset 0) j
        cross join lateral (
            select k.ctid as at from oncely.unique_key k
            where k.kind = j.kind and k.key = j.unique_key and k.job_id = j.id offset 0
        ) u
        where :is_unique
    ))
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'executions', k.key, 'completed', k.value::bigint
    from gone g cross join json_each_text(cast(cast(:kinds as text) as json)) k
),
told as (select count(oncely.tell_waiters(g.ids)) as n from gone g)
select epoch from gone where (select n from told) >= 0
