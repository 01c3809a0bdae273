-- The name of one that was removed can be had again; a repeat of the statement finds its own row.
insert into oncely.user as u (name, role, password, stamp, created_at, changed_at)
select :name, :role, :password, :stamp, c.now, c.now
from (select clock_timestamp() as now) c
on conflict (name) do update set
    role = excluded.role, password = excluded.password, stamp = excluded.stamp,
    created_at = excluded.created_at, changed_at = excluded.changed_at, removed_at = null
where u.removed_at is not null or u.stamp = excluded.stamp
returning name
