-- Take due jobs of one level, from each of these lanes up to its quota. Those of each limited group
-- have a lease of their own, by which they are counted; all others share one, with the label `rest`.
-- The first `started` of them begin at once. A payload of more bytes than `payload_limit`, if there
-- is one, is left out. `quota` is the highest of all, for a limit can name no
-- column. The leases that were made, at most so many as `most` says, are the newest, those under
-- this number after the epoch `since`.
insert into oncely_lease (nonce, worker, queue, group_key, ids, started, claimed_at, expires_at)
select :nonce, :worker, :queue, :rest, json_group_array(t.id), min(count(*), :started), t.now,
    t.now + :lease_us
from (
    select m.value as id, c.now
    from oncely_clock c cross join json_each(:doc) d cross join json_each((
        select json_group_array(x.id) from (
            select r.id from oncely_ready r
            where r.queue = :queue and r.priority = :priority
                and r.lane = json_extract(d.value, '$.lane') and r.due_at <= c.now
            order by r.due_at, r.id limit :quota
        ) x
    )) m
    where not json_extract(d.value, '$.is_limited') and m.key < json_extract(d.value, '$.quota')
) t
group by t.now;

insert into oncely_lease (nonce, worker, queue, group_key, ids, started, claimed_at, expires_at)
with took as materialized (
    select d.key as n, substr(json_extract(d.value, '$.lane'), 3) as label, c.now, (
        select json_group_array(m.value)
        from json_each((
            select json_group_array(x.id) from (
                select r.id from oncely_ready r
                where r.queue = :queue and r.priority = :priority
                    and r.lane = json_extract(d.value, '$.lane') and r.due_at <= c.now
                order by r.due_at, r.id limit :quota
            ) x
        )) m
        where m.key < json_extract(d.value, '$.quota')
    ) as ids
    from oncely_clock c cross join json_each(:doc) d
    where json_extract(d.value, '$.is_limited')
),
before as materialized (
    select coalesce(sum(json_array_length(l.ids)), 0) as jobs
    from oncely_lease l
    where l.epoch > (select q.seq - :most from sqlite_sequence q where q.name = 'oncely_lease')
        and l.epoch > :since and l.nonce = :nonce
),
room as (select :started - before.jobs as jobs from before)
select :nonce, :worker, :queue, t.label, t.ids, max(0, min(json_array_length(t.ids),
    (select room.jobs from room) - (
        select coalesce(sum(json_array_length(x.ids)), 0) from took x where x.n < t.n
    )
)), t.now, t.now + :lease_us
from took t
where json_array_length(t.ids) > 0
order by t.n;

delete from oncely_ready
where (queue, priority, lane, due_at, id) in (
    select j.queue, j.priority, case when j.group_key is null then '' else 'g:' || j.group_key end,
        s.due_at, j.id
    from oncely_lease l cross join json_each(l.ids) m
    cross join oncely_job j on j.id = m.value
    cross join oncely_standing s on s.job_id = m.value
    where l.epoch > (select q.seq - :most from sqlite_sequence q where q.name = 'oncely_lease')
        and l.epoch > :since and l.nonce = :nonce
);

select j.id, l.epoch, l.nonce, j.kind, j.queue, j.group_key,
    case when :payload_limit is null or length(cast(j.payload as blob)) <= :payload_limit
        then j.payload else '' end,
    coalesce(x.attempts, 0), coalesce(x.crashes, 0), coalesce(x.defers, 0),
    j.max_attempts, j.timeout_seconds, coalesce((l.claimed_at - x.first_deferred_at) / 1e6, 0.0), q.retry,
    q.timeout_seconds, (l.claimed_at - coalesce(x.due_at, j.due_at)) / 1e6,
    j.unique_key is not null, j.priority, j.traceparent, coalesce(x.hand_backs, 0)
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_job j on j.id = m.value
left join oncely_execution x on x.job_id = m.value and x.epoch = (
    select max(e.epoch) from oncely_execution e where e.job_id = m.value
)
left join oncely_queue q on q.name = j.queue
where l.epoch > (select q.seq - :most from sqlite_sequence q where q.name = 'oncely_lease')
    and l.epoch > :since and l.nonce = :nonce
order by l.epoch, m.key
