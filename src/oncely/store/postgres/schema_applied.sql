select number, checksum from oncely.migration
