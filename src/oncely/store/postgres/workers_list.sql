-- The workers that were heard of, and for how long they have been silent.
select w.name, w.host, w.pid, w.queues::text, w.concurrency, w.version, w.pushes,
    (extract(epoch from w.started_at) * 1000000)::bigint,
    (extract(epoch from w.seen_at) * 1000000)::bigint,
    w.running, (extract(epoch from clock_timestamp() - w.seen_at) * 1000000)::bigint
from oncely.worker w
order by w.host, w.started_at, w.name
