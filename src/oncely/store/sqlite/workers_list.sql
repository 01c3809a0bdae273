-- The workers that were heard of, and for how long they have been silent.
select w.name, w.host, w.pid, w.queues, w.concurrency, w.version, w.pushes, w.started_at, w.seen_at,
    w.running, (select now from oncely_clock) - w.seen_at
from oncely_worker w
order by w.host, w.started_at, w.name
