update oncely_user set
    removed_at = coalesce(removed_at, (select now from oncely_clock)), password = '', stamp = ''
where name = :name
returning name
