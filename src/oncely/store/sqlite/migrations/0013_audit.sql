-- Who changed what, when and why: written by operators only, in the transaction of the change. The
-- ids rise with time, so this is also the order in which entries are read and pruned.
create table oncely_audit (
    id text primary key,
    at integer not null,
    by_whom text not null,
    act text not null,
    about text not null,
    name text not null,
    note text,
    count integer,
    details text
) without rowid;
create index oncely_audit_by_name on oncely_audit (name, id);
