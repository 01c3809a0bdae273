-- The identity of the store that this connection reaches, and where that is.
select id, (select file from pragma_database_list where name = 'main') from oncely_store
