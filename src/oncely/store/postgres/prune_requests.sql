delete from oncely.request where ctid = any (array(
    select ctid from oncely.request
    where expires_at <= (select clock_timestamp()) order by expires_at limit :limit
    for update skip locked
))
returning 1
