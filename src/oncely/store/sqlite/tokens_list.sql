select id, digest, name, scopes, queues, created_at, expires_at, revoked_at,
    revoked_at is null and coalesce(expires_at > (select now from oncely_clock), true)
from oncely_token
where :id is null or id = :id
order by created_at, id
