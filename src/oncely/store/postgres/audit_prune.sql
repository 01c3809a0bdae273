delete from oncely.audit where id = any (array(
    select id from oncely.audit where id < cast(:before as uuid) order by id limit :limit
    for update skip locked
))
returning 1
