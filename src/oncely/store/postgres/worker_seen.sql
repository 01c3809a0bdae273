insert into oncely.worker as w (
    name, host, pid, queues, concurrency, version, pushes, started_at, seen_at, running
)
values (
    :name, :host, :pid, cast(cast(:queues as text) as json), :concurrency, :version, :pushes,
    clock_timestamp(), clock_timestamp(), :running
)
on conflict (name) do update set
    queues = excluded.queues, concurrency = excluded.concurrency, seen_at = excluded.seen_at,
    running = excluded.running
