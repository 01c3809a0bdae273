insert into oncely.ledger_migration (number, name, checksum) values (:number, :name, :checksum)
