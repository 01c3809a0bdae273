-- How many dead and live rows there are in the tables that every job passes through.
select c.relname, pg_stat_get_dead_tuples(c.oid), pg_stat_get_live_tuples(c.oid)
from pg_class c where c.oid in (cast('oncely.ready' as regclass), cast('oncely.lease' as regclass))
