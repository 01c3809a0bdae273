-- Only what is known to have happened, and long ago. The rows add up to how many they were.
delete from oncely.ledger where name in (
    select name from oncely.ledger
    where state = 'done'
        and ended_at < (select clock_timestamp()) - cast(:age_us as bigint) * interval '1 microsecond'
    order by ended_at limit :limit
)
returning 1
