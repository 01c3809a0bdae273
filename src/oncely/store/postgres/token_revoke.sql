update oncely.token set revoked_at = coalesce(revoked_at, clock_timestamp())
where id = :id
returning id
