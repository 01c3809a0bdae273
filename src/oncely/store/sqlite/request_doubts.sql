-- Those whose outcome nobody knows. It reads all that is remembered, in the order of the index: it is
-- for a person, who asks seldom.
select scope, key, begun_at, held_until, expires_at
from oncely_request
where expires_at > (select now from oncely_clock) and state = 'in_flight'
    and held_until <= (select now from oncely_clock) and (:key is null or key = :key)
order by expires_at limit :limit
