select file from pragma_database_list where name = 'main'
