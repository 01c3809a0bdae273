-- The identity of the store that this connection reaches, and where that is.
select id::text, concat('database ', current_database(), ', port ', current_setting('port'))
from oncely.store
