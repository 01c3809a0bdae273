delete from oncely_worker where name = :name
