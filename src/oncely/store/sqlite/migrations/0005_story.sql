-- The repeats that were recognised: calls that made no job, and ends that came too late. Rows are
-- only ever added, each under an id of its own: the call's or the execution's.
create table oncely_repeat (
    job_id text not null,
    boundary text not null check (boundary in ('enqueue', 'delivery', 'effect')),
    id text not null,
    at integer not null,
    key text check (key in ('idempotency', 'unique')),
    outcome text,
    epoch integer,
    attempt integer,
    worker text,
    primary key (job_id, boundary, id)
) without rowid;
