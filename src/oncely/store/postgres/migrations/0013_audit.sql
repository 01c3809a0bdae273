-- Who changed what, when and why: written by operators only, in the transaction of the change. The
-- ids rise with time, so this is also the order in which entries are read and pruned.
create table oncely.audit (
    id uuid primary key,
    at timestamptz not null,
    by_whom text not null,
    act text collate "C" not null,
    about text collate "C" not null,
    name text collate "C" not null,
    note text,
    count integer,
    details json
);
create index audit_by_name on oncely.audit (name, id);
