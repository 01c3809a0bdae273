select id, digest, name, scopes, queues,
    (extract(epoch from created_at) * 1000000)::bigint,
    (extract(epoch from expires_at) * 1000000)::bigint,
    (extract(epoch from revoked_at) * 1000000)::bigint,
    revoked_at is null and coalesce(expires_at > clock_timestamp(), true)
from oncely.token
where cast(:id as text) is null or id = cast(:id as text)
order by created_at, id
