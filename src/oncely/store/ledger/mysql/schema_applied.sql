select number, checksum from oncely_ledger_migration
