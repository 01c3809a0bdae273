insert into oncely_migration (number, name, checksum) values (:number, :name, :checksum)
