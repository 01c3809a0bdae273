-- HTTP requests that came with an idempotency key. One that is in flight belongs to its owner until
-- held_until; later nobody knows how it ended. One that is done without a body had a response that
-- was too large to keep.
create table oncely_request (
    scope text not null,
    key text not null,
    fingerprint text not null,
    owner integer not null,
    state text not null check (state in ('in_flight', 'done')),
    begun_at integer not null,
    held_until integer not null,
    ended_at integer,
    expires_at integer not null,
    status integer,
    headers text,
    body blob,
    primary key (scope, key),
    check ((state = 'done') = (status is not null and ended_at is not null)),
    check ((headers is null) = (body is null))
);
create index oncely_request_by_expiry on oncely_request (expires_at);
