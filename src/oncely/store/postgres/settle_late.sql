-- The lease ran out and the job was put back in line, but nobody has claimed it since: then its
-- end is accepted after all. Who deletes the row in ready, a claim or this, decides.
-- But somebody may be filing the row in the lane of its group, which moves it. That is waited for
-- first: what is deleted by its place must not move meanwhile.
select count(*)
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    id uuid, epoch bigint, nonce bigint, state text
)
-- One by one, here and below, whatever was the size of the tables when this was planned.
cross join lateral (
    select x.due_at from oncely.execution x
    where x.job_id = i.id and x.epoch = i.epoch and x.nonce = i.nonce offset 0
) e
cross join lateral (select * from oncely.job k where k.id = i.id offset 0) j
cross join lateral (
    select x.id from oncely.ready x
    where x.queue = j.queue and x.priority = j.priority and x.lane = 'later'
        and x.due_at = e.due_at and x.id = j.id
    for update
) r
where i.state is not null and j.group_key is not null
-- The answer is that of the other statement.
having count(*) < 0;

with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        id uuid, epoch bigint, nonce bigint, state text, attempt smallint, result text, error text
    ) where d.state is not null
),
mine as materialized (
    select i.*, e.worker, e.started_at, e.due_at
    from input i
    cross join lateral (
        select * from oncely.execution x
        where x.job_id = i.id and x.epoch = i.epoch and x.nonce = i.nonce offset 0
    ) e
    where e.outcome in ('crashed', 'retried')
        and e.epoch = (select max(x.epoch) from oncely.execution x where x.job_id = i.id)
),
gone as (
    delete from oncely.ready where ctid = any (array(
        select r.at
        from mine m
        cross join lateral (select * from oncely.job k where k.id = m.id offset 0) j
        -- Lane by lane: asked for any of them, the planner may read all lanes of the level.
        cross join unnest(array['', 'later', 'g:' || j.group_key]) n (lane)
        cross join lateral (
            select x.ctid as at from oncely.ready x
            where x.queue = j.queue and x.priority = j.priority and x.lane = n.lane
                and x.due_at = m.due_at and x.id = m.id offset 0
        ) r
    ))
    returning id
),
ended as (
    insert into oncely.outcome (
        job_id, state, epoch, attempt, worker, started_at, ended_at, error, result
    )
    select m.id, m.state, m.epoch, m.attempt, m.worker, m.started_at, clock_timestamp(),
        m.error::json, m.result::json
    from mine m join gone g on g.id = m.id
    returning job_id
),
forgotten as (
    delete from oncely.execution e using mine m, gone g
    where e.job_id = any (array(select x.id from gone x))
        and g.id = m.id and e.job_id = m.id and e.epoch = m.epoch
),
freed as (
    delete from oncely.unique_key where ctid = any (array(
        select u.at
        from gone g join mine m on m.id = g.id
        cross join lateral (select * from oncely.job k where k.id = m.id offset 0) j
        cross join lateral (
            select k.ctid as at from oncely.unique_key k
            where k.kind = j.kind and k.key = j.unique_key and k.job_id = j.id offset 0
        ) u
        where m.state in ('completed', 'failed', 'cancelled')
    ))
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'executions', j.kind, m.state, count(*)
    from gone g join mine m on m.id = g.id
    cross join lateral (select k.kind from oncely.job k where k.id = m.id offset 0) j
    group by j.kind, m.state
),
told as (
    select count(oncely.tell_waiters(e.ids)) as n from (select array_agg(job_id) as ids from ended) e
)
select m.id::text, m.epoch, m.nonce from mine m join gone g on g.id = m.id
where (select n from told) >= 0
