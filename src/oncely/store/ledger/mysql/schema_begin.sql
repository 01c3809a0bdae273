create table if not exists oncely_ledger_migration (
    number integer primary key,
    name varchar(255) not null,
    checksum varchar(255) not null,
    applied_at timestamp not null default current_timestamp
) engine = InnoDB
