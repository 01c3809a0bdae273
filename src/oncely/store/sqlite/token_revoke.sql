update oncely_token set revoked_at = coalesce(revoked_at, (select now from oncely_clock))
where id = :id
returning id
