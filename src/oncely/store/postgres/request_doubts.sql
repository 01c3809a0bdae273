-- Those whose outcome nobody knows. It reads all that is remembered, in the order of the index: it is
-- for a person, who asks seldom.
select scope, key, (extract(epoch from begun_at) * 1000000)::bigint,
    (extract(epoch from held_until) * 1000000)::bigint,
    (extract(epoch from expires_at) * 1000000)::bigint
from oncely.request
where expires_at > (select clock_timestamp()) and state = 'in_flight'
    and held_until <= clock_timestamp() and (cast(:key as text) is null or key = :key)
order by expires_at limit :limit
