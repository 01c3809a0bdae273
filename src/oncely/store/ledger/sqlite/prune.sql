-- Only what is known to have happened, and long ago. The rows add up to how many they were.
delete from oncely_ledger where name in (
    select name from oncely_ledger
    where state = 'done' and ended_at < (select now from oncely_ledger_clock) - :age_us
    order by ended_at limit :limit
)
returning 1
