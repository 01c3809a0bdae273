-- It ends then, or earlier if that was said before.
update oncely.token set expires_at = least(
    expires_at, clock_timestamp() + cast(:overlap_us as bigint) * interval '1 microsecond'
)
where id = :id and revoked_at is null and coalesce(expires_at > clock_timestamp(), true)
returning id
