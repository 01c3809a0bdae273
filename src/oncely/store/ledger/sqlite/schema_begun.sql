select 1 from sqlite_master where name = 'oncely_ledger_migration'
