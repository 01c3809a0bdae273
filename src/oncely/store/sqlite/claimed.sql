select j.id, l.epoch, l.nonce, j.kind, j.queue, j.payload, s.attempts, s.crashes, s.defers,
    j.max_attempts, j.timeout_seconds, (l.claimed_at - j.created_at) / 1e6
from oncely_lease l cross join json_each(l.ids) m
cross join oncely_job j on j.id = m.value
cross join oncely_standing s on s.job_id = m.value
where l.worker = :worker and l.nonce >= :nonce and l.nonce < :beyond
order by l.epoch, m.key
