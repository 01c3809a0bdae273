-- The repeats that were recognised: calls that made no job, and ends that came too late. Rows are
-- only ever added, each under an id of its own (the call's or the execution's), so that no
-- transaction waits here for another, however long the caller keeps it open.
create table oncely.repeat (
    job_id uuid not null,
    boundary text collate "C" not null check (boundary in ('enqueue', 'delivery', 'effect')),
    id text collate "C" not null,
    at timestamptz not null,
    key text collate "C" check (key in ('idempotency', 'unique')),
    outcome text collate "C",
    epoch bigint,
    attempt smallint,
    worker text,
    primary key (job_id, boundary, id)
);
