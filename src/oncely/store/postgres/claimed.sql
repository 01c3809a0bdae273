-- What a claim holds that was made before. A payload of more bytes than `payload_limit`, if there is
-- one, is left out.
select j.id::text, l.epoch, l.nonce, j.kind, j.queue, j.group_key,
    case when cast(:payload_limit as bigint) is null
        or octet_length(j.payload::text) <= :payload_limit then j.payload::text else '' end,
    s.attempts, s.crashes, s.defers, j.max_attempts, j.timeout_seconds,
    coalesce(date_part('epoch', l.claimed_at - s.first_deferred_at), 0), q.retry::text, q.timeout_seconds,
    date_part('epoch', l.claimed_at - s.due_at),
    j.unique_key is not null, j.priority, j.traceparent, s.hand_backs
from oncely.lease l cross join unnest(l.ids) with ordinality m (id, n)
-- One by one, whatever was the size of the tables when this was planned.
cross join lateral (select * from oncely.job k where k.id = m.id offset 0) j
cross join lateral (select * from oncely.standing t where t.job_id = m.id offset 0) s
left join oncely.queue q on q.name = j.queue
where l.worker = :worker and l.nonce >= :nonce and l.nonce < :beyond
order by l.epoch, m.n
