select number, checksum from oncely_migration
