delete from oncely.session where id = :id
