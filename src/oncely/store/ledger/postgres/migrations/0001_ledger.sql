-- What happened once, by its name. `begun` is an intent whose end is not known, `in_doubt` one that a
-- person was asked about. `begun_by` is the call that may have done it, `holder` the one that has the
-- entry until `held_until`: time decides who may go on, never what is true.
create table oncely.ledger (
    name text collate "C" primary key,
    verb text collate "C" not null check (verb in ('step', 'fence', 'transaction')),
    state text collate "C" not null check (state in ('begun', 'in_doubt', 'done')),
    fingerprint text collate "C" not null,
    arguments text,
    begun_by text collate "C" not null,
    holder text collate "C" not null,
    held_until timestamptz not null,
    begun_at timestamptz not null,
    ended_at timestamptz,
    source text collate "C"
        check (source in ('returned', 'unkept', 'verified', 'assumed', 'resolved')),
    result text
);
-- Not `<> 'done'`, as the statements on one entry say: those must seek by name.
create index ledger_open on oncely.ledger (held_until) where state in ('begun', 'in_doubt');
create index ledger_over on oncely.ledger (ended_at) where state = 'done';

-- Who answered for an entry in doubt, and what. Rows are only ever added.
create table oncely.ledger_resolution (
    name text collate "C" not null,
    at timestamptz not null,
    happened boolean not null,
    by_whom text not null,
    note text,
    primary key (name, at)
);
