-- The ledger: what the handlers of jobs have done to the world. `begun` is an intent whose outcome
-- is not known yet, `in_doubt` one that nobody can know without asking: its job is held for it.
create table oncely.effect (
    job_id uuid not null,
    name text collate "C" not null,
    verb text collate "C" not null check (verb in ('step', 'fence')),
    state text collate "C" not null check (state in ('begun', 'in_doubt', 'done')),
    fingerprint text collate "C" not null,
    arguments text,
    epoch bigint not null,
    begun_at timestamptz not null,
    ended_at timestamptz,
    source text collate "C"
        check (source in ('returned', 'unkept', 'verified', 'assumed', 'resolved')),
    result json,
    expires_at timestamptz,
    primary key (job_id, name)
);
create index effect_by_expiry on oncely.effect (expires_at) where expires_at is not null;

-- Who answered for an effect in doubt, and what. Rows are only ever added.
create table oncely.resolution (
    job_id uuid not null,
    name text collate "C" not null,
    at timestamptz not null,
    happened boolean not null,
    by_whom text not null,
    note text,
    primary key (job_id, name, at)
);
