insert into oncely.migration (number, name, checksum) values (:number, :name, :checksum)
