update oncely_user set
    role = coalesce(:role, role),
    password = coalesce(:password, password),
    stamp = coalesce(:stamp, stamp),
    changed_at = (select now from oncely_clock)
where name = :name and removed_at is null
returning name
