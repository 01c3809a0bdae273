select number, checksum from oncely.ledger_migration
