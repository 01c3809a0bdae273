select name, role, password, stamp,
    (extract(epoch from created_at) * 1000000)::bigint,
    (extract(epoch from changed_at) * 1000000)::bigint
from oncely.user
where removed_at is null and (cast(:name as text) is null or name = cast(:name as text))
order by name
