update oncely.user set
    removed_at = coalesce(removed_at, clock_timestamp()), password = '', stamp = ''
where name = :name
returning name
