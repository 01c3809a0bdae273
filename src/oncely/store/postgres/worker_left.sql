delete from oncely.worker where name = :name
