-- A transaction that ends a job locks the lease, for as long as its handler keeps it open. Until when
-- its worker has renewed such a lease stands here: were it rolled back after the lease has run out,
-- the job would be taken from a worker that lives, and count as a crash.
create table oncely.locked_lease (
    epoch bigint primary key,
    nonce bigint not null,
    expires_at timestamptz not null
)
