-- What is counted: deltas, written in the transaction of what they count; workers fold them into the
-- totals. `label` is the second label of the counters that have one.
create table oncely_tally (
    name text not null,
    kind text not null,
    label text not null,
    n integer not null check (n > 0)
);

-- What was folded. A counter is its total and the deltas that are left.
create table oncely_counter (
    name text not null,
    kind text not null,
    label text not null,
    total integer not null check (total > 0),
    primary key (name, kind, label)
) without rowid;

-- An effect can also be forgotten, by a replay with a fresh ledger: `happened` is what was known
-- then. Like the effects these rows outlive their job.
alter table oncely_resolution add column forgotten integer not null default 0;
alter table oncely_resolution add column expires_at integer;
create index oncely_resolution_by_expiry on oncely_resolution (expires_at)
    where expires_at is not null;
