-- Who may look at the dashboard by a password, of which an argon2 hash is kept. One that was removed
-- stays as a row: a store that ever had a user is never open to everyone again.
create table oncely.user (
    name text collate "C" primary key,
    role text not null check (role in ('reader', 'operator')),
    password text not null,
    -- A new one with each password: the sessions of the one before are over.
    stamp text not null,
    created_at timestamptz not null,
    changed_at timestamptz not null,
    removed_at timestamptz
);

-- Signed in at the dashboard, by a user or by a token. What is kept of the cookie is its hash.
create table oncely.session (
    id text collate "C" primary key,
    kind text not null check (kind in ('user', 'token')),
    who text collate "C" not null,
    stamp text not null,
    created_at timestamptz not null,
    seen_at timestamptz not null
);
