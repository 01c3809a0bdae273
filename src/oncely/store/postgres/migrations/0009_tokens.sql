-- The keys of the HTTP API. What is kept of a key is its hash. One that was revoked stays as a row:
-- a store that ever had a token is never open to everyone again.
create table oncely.token (
    id text collate "C" primary key,
    digest text collate "C" not null,
    name text,
    scopes text not null,
    queues text,
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz
);

alter table oncely.queue add column require_key boolean not null default false;
