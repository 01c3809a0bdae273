-- It ends then, or earlier if that was said before.
update oncely_token set expires_at = min(
    coalesce(expires_at, (select now from oncely_clock) + :overlap_us),
    (select now from oncely_clock) + :overlap_us
)
where id = :id and revoked_at is null
    and coalesce(expires_at > (select now from oncely_clock), true)
returning id
