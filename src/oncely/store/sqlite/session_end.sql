delete from oncely_session where id = :id
