-- What happened once, by its name. `begun` is an intent whose end is not known, `in_doubt` one that a
-- person was asked about. `begun_by` is the call that may have done it, `holder` the one that has the
-- entry until `held_until`: time decides who may go on, never what is true.
-- DDL commits by itself here, so each statement of a migration can be repeated.
create table if not exists oncely_ledger (
    name varchar(255) character set utf8mb4 collate utf8mb4_bin not null primary key,
    verb varchar(16) not null,
    state varchar(16) not null,
    fingerprint varchar(255) not null,
    arguments text character set utf8mb4,
    begun_by varchar(64) not null,
    holder varchar(64) not null,
    held_until datetime(6) not null,
    begun_at datetime(6) not null,
    ended_at datetime(6),
    source varchar(16),
    result longtext character set utf8mb4,
    key oncely_ledger_open (state, held_until),
    key oncely_ledger_over (state, ended_at)
) engine = InnoDB;

create table if not exists oncely_ledger_resolution (
    name varchar(255) character set utf8mb4 collate utf8mb4_bin not null,
    at datetime(6) not null,
    happened boolean not null,
    by_whom varchar(255) character set utf8mb4 not null,
    note text character set utf8mb4,
    primary key (name, at)
) engine = InnoDB
