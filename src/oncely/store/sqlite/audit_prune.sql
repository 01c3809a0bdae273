delete from oncely_audit
where id in (select id from oncely_audit where id < :before order by id limit :limit)
returning 1
