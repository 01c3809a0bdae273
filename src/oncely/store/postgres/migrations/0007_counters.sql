-- What is counted: deltas, written in the transaction of what they count. Rows are only ever added,
-- and there is no index, so that no transaction waits here for another; workers fold them into the
-- totals. `label` is the second label of the counters that have one.
create table oncely.tally (
    name text collate "C" not null,
    kind text collate "C" not null,
    label text collate "C" not null,
    n bigint not null check (n > 0)
);

-- What was folded. A counter is its total and the deltas that are left.
create table oncely.counter (
    name text collate "C" not null,
    kind text collate "C" not null,
    label text collate "C" not null,
    total bigint not null check (total > 0),
    primary key (name, kind, label)
) with (fillfactor = 50);

-- An effect can also be forgotten, by a replay with a fresh ledger: `happened` is what was known
-- then. Like the effects these rows outlive their job.
alter table oncely.resolution
    add column forgotten boolean not null default false,
    add column expires_at timestamptz;
create index resolution_by_expiry on oncely.resolution (expires_at) where expires_at is not null;
