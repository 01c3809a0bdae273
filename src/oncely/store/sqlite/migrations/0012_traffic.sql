-- When it was counted: the fold files it under the step of time that it belongs to.
create table oncely_tally_with_moments (
    name text not null,
    kind text not null,
    label text not null,
    n integer not null check (n > 0),
    at integer not null default (cast(strftime('%s', 'now') as integer) * 1000000)
);
insert into oncely_tally_with_moments (name, kind, label, n)
select name, kind, label, n from oncely_tally;
drop table oncely_tally;
alter table oncely_tally_with_moments rename to oncely_tally;

-- What was counted in each step of time, for the charts. A step is `seconds` long and begins at
-- `step`, in seconds since 1970; each delta is added to one step of every length.
create table oncely_traffic (
    seconds integer not null,
    step integer not null,
    name text not null,
    kind text not null,
    label text not null,
    n integer not null check (n > 0),
    primary key (seconds, step, name, kind, label)
) without rowid;

-- How long jobs waited and ran, as far as workers have told: how many there were in each bucket.
create table oncely_latency (
    seconds integer not null,
    step integer not null,
    measure text not null check (measure in ('waited', 'ran')),
    queue text not null,
    kind text not null,
    buckets text not null,
    primary key (seconds, step, measure, queue, kind)
) without rowid;

-- The workers that were heard of. One that stops takes its row with it.
create table oncely_worker (
    name text primary key,
    host text,
    pid integer,
    queues text,
    concurrency integer,
    version text,
    pushes integer not null default 0,
    started_at integer not null,
    seen_at integer not null,
    running integer not null default 0
) without rowid
