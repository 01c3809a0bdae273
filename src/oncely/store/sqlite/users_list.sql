select name, role, password, stamp, created_at, changed_at
from oncely_user
where removed_at is null and (:name is null or name = :name)
order by name
