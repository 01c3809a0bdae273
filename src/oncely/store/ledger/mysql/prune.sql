-- Only what is known to have happened, and long ago. The rows add up to how many they were.
delete from oncely_ledger
where state = 'done' and ended_at < utc_timestamp(6) - interval :age_us microsecond
order by ended_at limit :limit;

select row_count()
