-- What happened once, by its name. `begun` is an intent whose end is not known, `in_doubt` one that a
-- person was asked about. `begun_by` is the call that may have done it, `holder` the one that has the
-- entry until `held_until`: time decides who may go on, never what is true.
create table oncely_ledger (
    name text primary key,
    verb text not null check (verb in ('step', 'fence', 'transaction')),
    state text not null check (state in ('begun', 'in_doubt', 'done')),
    fingerprint text not null,
    arguments text,
    begun_by text not null,
    holder text not null,
    held_until integer not null,
    begun_at integer not null,
    ended_at integer,
    source text check (source in ('returned', 'unkept', 'verified', 'assumed', 'resolved')),
    result text
) without rowid;
create index oncely_ledger_open on oncely_ledger (held_until) where state <> 'done';
create index oncely_ledger_over on oncely_ledger (ended_at) where state = 'done';

-- Who answered for an entry in doubt, and what. Rows are only ever added.
create table oncely_ledger_resolution (
    name text not null,
    at integer not null,
    happened integer not null,
    by_whom text not null,
    note text,
    primary key (name, at)
) without rowid;

create view oncely_ledger_clock as
select cast(strftime('%s', 'now') as integer) * 1000000
    + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000 as now;
