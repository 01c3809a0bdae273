update oncely.user set
    role = coalesce(cast(:role as text), role),
    password = coalesce(cast(:password as text), password),
    stamp = coalesce(cast(:stamp as text), stamp),
    changed_at = clock_timestamp()
where name = :name and removed_at is null
returning name
