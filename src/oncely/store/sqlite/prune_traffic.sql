-- Steps of one length that no chart shows any more.
delete from oncely_traffic
where seconds = :seconds and step < (select now / 1000000 from oncely_clock) - :keep_seconds;

delete from oncely_latency
where seconds = :seconds and step < (select now / 1000000 from oncely_clock) - :keep_seconds
