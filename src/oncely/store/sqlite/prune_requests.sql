delete from oncely_request
where rowid in (
    select rowid from oncely_request
    where expires_at <= (select now from oncely_clock) order by expires_at limit :limit
)
returning 1
