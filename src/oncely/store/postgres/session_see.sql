update oncely.session set seen_at = clock_timestamp() where id = :id
