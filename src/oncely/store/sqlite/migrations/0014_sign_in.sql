-- Who may look at the dashboard by a password, of which an argon2 hash is kept. One that was removed
-- stays as a row: a store that ever had a user is never open to everyone again.
create table oncely_user (
    name text primary key,
    role text not null check (role in ('reader', 'operator')),
    password text not null,
    -- A new one with each password: the sessions of the one before are over.
    stamp text not null,
    created_at integer not null,
    changed_at integer not null,
    removed_at integer
) without rowid;

-- Signed in at the dashboard, by a user or by a token. What is kept of the cookie is its hash.
create table oncely_session (
    id text primary key,
    kind text not null check (kind in ('user', 'token')),
    who text not null,
    stamp text not null,
    created_at integer not null,
    seen_at integer not null
) without rowid;
