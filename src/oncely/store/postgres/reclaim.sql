-- Take back what dead workers held. A job that was begun counts a crash, and after too many in a
-- row it fails as a poison pill; the last of them counts only if no other job of its lease was begun.
-- One that was fetched ahead may have begun without a word to the store: it has one crash from then
-- on, but no more than that. If the ledger has an effect of this delivery, it was begun. All keep
-- their place in the line: who claims next meets first what died first, and is careful with all that
-- has a crash.
with dead as (
    delete from oncely.lease l where l.epoch = any (array(
        select x.epoch from oncely.lease x where x.expires_at <= (select clock_timestamp())
            and not exists (
                select from oncely.locked_lease k
                where k.epoch = x.epoch and k.nonce = x.nonce
                    and k.expires_at > (select clock_timestamp())
                offset 0
            )
        order by x.epoch limit :limit
        for update skip locked
    ))
    returning l.epoch, l.nonce, l.worker, l.ids, l.started, l.claimed_at
),
unlocked as (
    delete from oncely.locked_lease where epoch = any (array(
        select k.epoch from oncely.locked_lease k where k.expires_at <= (select clock_timestamp())
        limit :limit
        for update skip locked
    ))
),
member as materialized (
    select d.epoch, d.nonce, d.worker, d.claimed_at, m.id, t.tried,
        j.queue, j.priority, j.kind, j.unique_key, j.group_key, clock_timestamp() as now,
        s.due_at, s.attempts, s.defers, s.first_deferred_at, s.hand_backs,
        case
            when not t.tried then greatest(s.crashes, 1)
            when count(*) filter (where t.tried) over (partition by d.epoch) = 1 then s.crashes + 1
            else least(s.crashes + 1, :crash_limit - 1)
        end as crashes
    from dead d cross join unnest(d.ids) with ordinality m (id, n)
    cross join lateral (
        select m.n <= d.started or exists (
            select from oncely.effect e where e.job_id = m.id and e.epoch = d.epoch offset 0
        ) as tried
    ) t
    -- One by one, here and below, whatever was the size of the tables when this was planned.
    cross join lateral (select * from oncely.job k where k.id = m.id offset 0) j
    cross join lateral (select * from oncely.standing t where t.job_id = m.id offset 0) s
),
poisoned as (
    insert into oncely.outcome (job_id, state, epoch, attempt, worker, started_at, ended_at, error)
    select id, 'failed', epoch, attempts + 1, worker, claimed_at, now, cast(cast(:poison as text) as json)
    from member where tried and crashes >= :crash_limit
    returning job_id
),
crashed as (
    insert into oncely.execution (
        job_id, epoch, nonce, outcome, attempt, worker, started_at, ended_at, due_at, attempts,
        crashes, defers, first_deferred_at, hand_backs, error
    )
    select id, epoch, nonce, 'crashed', attempts + 1, worker, claimed_at, now, due_at, attempts,
        crashes, defers, first_deferred_at, hand_backs,
        cast(case when tried then cast(:crash as text) else cast(:held as text) end as json)
    from member where not tried or crashes < :crash_limit
),
waiting as (
    insert into oncely.ready (
        queue, priority, lane, due_at, id, attempts, crashes, defers, hand_backs
    )
    select queue, priority, case when group_key is null then '' else 'later' end,
        due_at, id, attempts, crashes, defers, hand_backs
    from member where not tried or crashes < :crash_limit
    returning queue
),
freed as (
    delete from oncely.unique_key where ctid = any (array(
        select u.at
        from poisoned p join member m on m.id = p.job_id
        cross join lateral (
            select k.ctid as at from oncely.unique_key k
            where k.kind = m.kind and k.key = m.unique_key and k.job_id = m.id offset 0
        ) u
    ))
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'executions', kind, case when crashes >= :crash_limit then 'failed' else 'crashed' end,
        count(*)
    from member where tried group by 2, 3
),
woken as (
    select count(oncely.wake(w.queue)) as queues from (select distinct queue from waiting) w
),
told as (
    select count(oncely.tell_waiters(e.ids)) as n
    from (select array_agg(job_id) as ids from poisoned) e
)
select m.id::text, m.epoch, m.kind, m.queue, m.worker,
    case when not m.tried then 'untried' when m.crashes >= :crash_limit then 'poisoned'
        else 'crashed' end
from member m
where (select queues from woken) >= 0 and (select n from told) >= 0
