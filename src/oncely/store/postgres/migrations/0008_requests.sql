-- HTTP requests that came with an idempotency key. One that is in flight belongs to its owner until
-- held_until; later nobody knows how it ended. One that is done without a body had a response that
-- was too large to keep.
create table oncely.request (
    scope text collate "C" not null,
    key text collate "C" not null,
    fingerprint text not null,
    owner bigint not null,
    state text not null check (state in ('in_flight', 'done')),
    begun_at timestamptz not null,
    held_until timestamptz not null,
    ended_at timestamptz,
    expires_at timestamptz not null,
    status integer,
    headers text,
    body bytea,
    primary key (scope, key),
    check ((state = 'done') = (status is not null and ended_at is not null)),
    check ((headers is null) = (body is null))
);
create index request_by_expiry on oncely.request (expires_at);
