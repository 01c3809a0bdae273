-- Where the first of the last steps begins, in seconds since 1970.
select (floor(extract(epoch from clock_timestamp()) / :seconds)::bigint - :steps + 1) * :seconds
