-- The identity of the store, made once. A transaction of the caller's on another file that has tables
-- of oncely is recognised by it. A restored backup is the same store.
create table oncely_store (
    one integer primary key check (one = 1),
    id text not null
);

insert into oncely_store (one, id) values (1, lower(hex(randomblob(16))))
