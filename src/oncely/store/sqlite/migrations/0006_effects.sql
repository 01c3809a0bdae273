-- The ledger: what the handlers of jobs have done to the world. `begun` is an intent whose outcome
-- is not known yet, `in_doubt` one that nobody can know without asking: its job is held for it.
create table oncely_effect (
    job_id text not null,
    name text not null,
    verb text not null check (verb in ('step', 'fence')),
    state text not null check (state in ('begun', 'in_doubt', 'done')),
    fingerprint text not null,
    arguments text,
    epoch integer not null,
    begun_at integer not null,
    ended_at integer,
    source text check (source in ('returned', 'unkept', 'verified', 'assumed', 'resolved')),
    result text,
    expires_at integer,
    primary key (job_id, name)
) without rowid;
create index oncely_effect_by_expiry on oncely_effect (expires_at) where expires_at is not null;

-- Who answered for an effect in doubt, and what. Rows are only ever added.
create table oncely_resolution (
    job_id text not null,
    name text not null,
    at integer not null,
    happened integer not null,
    by_whom text not null,
    note text,
    primary key (job_id, name, at)
) without rowid;
