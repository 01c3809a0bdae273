-- When it was counted: the fold files it under the step of time that it belongs to.
alter table oncely.tally add column at timestamptz not null default clock_timestamp();

-- What was counted in each step of time, for the charts. A step is `seconds` long and begins at
-- `step`, in seconds since 1970; each delta is added to one step of every length.
create table oncely.traffic (
    seconds integer not null,
    step bigint not null,
    name text collate "C" not null,
    kind text collate "C" not null,
    label text collate "C" not null,
    n bigint not null check (n > 0),
    primary key (seconds, step, name, kind, label)
) with (fillfactor = 50);

-- How long jobs waited and ran, as far as workers have told: how many there were in each bucket.
create table oncely.latency (
    seconds integer not null,
    step bigint not null,
    measure text collate "C" not null check (measure in ('waited', 'ran')),
    queue text collate "C" not null,
    kind text collate "C" not null,
    buckets json not null,
    primary key (seconds, step, measure, queue, kind)
) with (fillfactor = 50);

-- The workers that were heard of. One that stops takes its row with it.
create table oncely.worker (
    name text collate "C" primary key,
    host text,
    pid integer,
    queues json,
    concurrency integer,
    version text,
    pushes boolean not null default false,
    started_at timestamptz not null,
    seen_at timestamptz not null,
    running integer not null default 0
) with (fillfactor = 50)
