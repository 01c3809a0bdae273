-- What was written so far: bytes of WAL (by the whole server), bytes on disk, and index entries. An
-- update that is not HOT writes an entry into every index. How many entries a partial index got is
-- not counted anywhere: its rows as of the last ANALYZE stand for that.
select
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
    (select sum(pg_total_relation_size(c.oid))::bigint from pg_class c
     where c.relnamespace = cast('oncely' as regnamespace) and c.relkind = 'r'),
    (select sum(
        case
            when x.indpred is null then s.n_tup_ins + s.n_tup_upd - s.n_tup_hot_upd
            else greatest(c.reltuples, 0)
        end)::bigint
     from pg_stat_user_tables s
     join pg_index x on x.indrelid = s.relid
     join pg_class c on c.oid = x.indexrelid
     where s.relid in (
        select t.oid from pg_class t where t.relnamespace = cast('oncely' as regnamespace)
     ))
