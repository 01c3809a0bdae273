create table if not exists oncely_ledger_migration (
    number integer primary key,
    name text not null,
    checksum text not null,
    applied_at text not null default current_timestamp
)
