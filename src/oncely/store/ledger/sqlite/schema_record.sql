insert into oncely_ledger_migration (number, name, checksum) values (:number, :name, :checksum)
