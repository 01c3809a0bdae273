insert into oncely_worker (
    name, host, pid, queues, concurrency, version, pushes, started_at, seen_at, running
)
select :name, :host, :pid, :queues, :concurrency, :version, :pushes, now, now, :running
from oncely_clock where true
on conflict (name) do update set
    queues = excluded.queues, concurrency = excluded.concurrency, seen_at = excluded.seen_at,
    running = excluded.running
