-- The identity of the store, made once. A transaction of the caller's on another database that has
-- tables of oncely is recognised by it. A restored backup and a promoted standby are the same store.
create table oncely.store (
    one boolean primary key default true check (one),
    id uuid not null
);

insert into oncely.store (id) values (gen_random_uuid())
