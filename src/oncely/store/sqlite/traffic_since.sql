-- Where the first of the last steps begins, in seconds since 1970.
select (now / 1000000 / :seconds - :steps + 1) * :seconds from oncely_clock
