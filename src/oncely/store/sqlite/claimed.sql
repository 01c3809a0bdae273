-- What a claim holds that was made before. A payload of more bytes than `payload_limit`, if there is
-- one, is left out.
select j.id, l.epoch, l.nonce, j.kind, j.queue, j.group_key,
    case when :payload_limit is null or length(cast(j.payload as blob)) <= :payload_limit
        then j.payload else '' end,
    s.attempts, s.crashes, s.defers,
    j.max_attempts, j.timeout_seconds, coalesce((l.claimed_at - s.first_deferred_at) / 1e6, 0.0), q.retry,
    q.timeout_seconds, (l.claimed_at - s.due_at) / 1e6,
    j.unique_key is not null, j.priority, j.traceparent, s.hand_backs
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_job j on j.id = m.value
cross join oncely_standing s on s.job_id = m.value
left join oncely_queue q on q.name = j.queue
where l.worker = :worker and l.nonce >= :nonce and l.nonce < :beyond
order by l.epoch, m.key
