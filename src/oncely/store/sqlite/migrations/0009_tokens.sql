-- The keys of the HTTP API. What is kept of a key is its hash. One that was revoked stays as a row:
-- a store that ever had a token is never open to everyone again.
create table oncely_token (
    id text primary key,
    digest text not null,
    name text,
    scopes text not null,
    queues text,
    created_at integer not null,
    expires_at integer,
    revoked_at integer
) without rowid;

alter table oncely_queue add column require_key integer not null default 0;
