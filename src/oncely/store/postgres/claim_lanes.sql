-- Take due jobs of one level, from each of these lanes up to its quota. Those of each limited group
-- have a lease of their own, by which they are counted; all others share one, with the label `rest`.
-- The first `started` of them begin at once. `apart`: a lease for each. A payload of more bytes than
-- `payload_limit`, if there is one, is left out.
-- Before `ago_us` are only the dead entries of jobs that were claimed, and a step over each of them
-- costs.
-- `is_checked`: the limits are held, and the quotas within them. Otherwise that is seen to here.
-- Nothing is taken under a limit that no earlier statement of this transaction has locked, nor where
-- it has a rate, nor while jobs may be under way that were claimed before it was set and are counted
-- one by one: that needs more than this statement.
with me as materialized (
    select pg_current_xact_id()::xid as xid, (
        select min(l.claimed_at) from oncely.lease l where l.group_key = ''
    ) as mixed_since
    where not :is_checked
),
room as materialized (
    select case
        when f.locked_by = me.xid and not f.paused and f.rate_count is null then greatest(0,
            f.concurrency - coalesce((
                select sum(cardinality(l.ids)) from oncely.lease l where l.queue = f.name
            ), 0))
        else 0
    end as jobs
    from me cross join lateral (
        select x.*, x.xmax as locked_by from oncely.flow_limit x
        where x.scope = 'queue' and x.name = :queue limit 1
    ) f
),
lane as materialized (
    select d.lane, case when :is_checked then d.is_limited else f.name is not null end as is_limited,
        coalesce(clock_timestamp() - d.ago_us * interval '1 microsecond', '-infinity') as due_at,
        case
            when f.name is null then d.quota
            when f.locked_by = f.xid and not f.paused and f.rate_count is null
                and (f.mixed_since < f.since + interval '1 minute') is not true
            then greatest(0, least(d.quota, f.concurrency - coalesce((
                select sum(cardinality(l.ids)) from oncely.lease l where l.group_key = f.name
            ), 0)))
            else 0
        end as quota
    from json_to_recordset(cast(:doc as json)) as d (
        lane text, quota integer, is_limited boolean, ago_us bigint
    )
    left join lateral (
        select x.*, x.xmax as locked_by, me.* from me cross join oncely.flow_limit x
        where x.scope = 'group' and x.name = substr(d.lane, 3) and d.lane > '' limit 1
    ) f on true
),
took as (
    delete from oncely.ready where ctid = any (array(
        select due.ctid
        from lane d cross join lateral (
            select r.ctid from oncely.ready r
            where r.queue = :queue and r.priority = :priority and r.lane = d.lane
                and r.due_at >= d.due_at and r.due_at <= (select clock_timestamp())
            order by r.due_at, r.id limit d.quota
            for update skip locked
        ) due
        limit (select jobs from room)
    ))
    returning id, lane, due_at, attempts, crashes, defers, hand_backs
),
ranked as (
    select t.*, row_number() over (order by t.label, t.due_at, t.id) as n
    from (
        select took.*, case when took.lane in (select d.lane from lane d where d.is_limited)
            then substr(took.lane, 3) else '' end as label
        from took
    ) t
),
-- The epochs are known before the rows are written: to join the jobs with what was written would
-- compare each with each.
lease as materialized (
    select nextval('oncely.lease_epoch_seq') as epoch, min(r.label) as label, c.now,
        count(*) filter (where r.n <= :started) as started,
        array_agg(r.id) as ids, array_agg(r.due_at) as due_ats, array_agg(r.attempts) as attempts,
        array_agg(r.crashes) as crashes, array_agg(r.defers) as defers,
        array_agg(r.hand_backs) as hand_backs
    from ranked r, (select clock_timestamp() as now offset 0) c
    group by r.label, c.now, case when :apart then r.id end
),
held as (
    insert into oncely.lease (
        epoch, nonce, worker, queue, group_key, ids, started, claimed_at, expires_at
    ) overriding system value
    select l.epoch, :nonce, :worker, :queue,
        case l.label when '' then cast(:rest as text) else l.label end, l.ids, l.started, l.now,
        l.now + :lease_us * interval '1 microsecond'
    from lease l
)
select t.id::text, t.epoch, cast(:nonce as bigint), j.kind, j.queue, j.group_key,
    case when cast(:payload_limit as bigint) is null
        or octet_length(j.payload::text) <= :payload_limit then j.payload::text else '' end,
    t.attempts, t.crashes, t.defers, j.max_attempts, j.timeout_seconds,
    case when t.defers > 0 then coalesce(date_part('epoch', t.now - (
        select e.first_deferred_at from oncely.execution e
        where e.job_id = t.id order by e.epoch desc limit 1
    )), 0) else 0 end, q.retry::text, q.timeout_seconds,
    date_part('epoch', t.now - t.due_at),
    j.unique_key is not null, j.priority, j.traceparent, t.hand_backs
-- In order before the wide rows are made, which would cost more to sort.
from (
    select l.epoch, l.now, m.*
    from lease l cross join lateral unnest(
        l.ids, l.due_ats, l.attempts, l.crashes, l.defers, l.hand_backs
    ) with ordinality m (id, due_at, attempts, crashes, defers, hand_backs, place)
    order by l.epoch, m.place
) t
-- One by one, whatever was the size of the table when this was planned.
cross join lateral (select * from oncely.job k where k.id = t.id offset 0) j
left join oncely.queue q on q.name = j.queue
order by t.epoch, t.place
