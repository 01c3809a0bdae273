-- Steps of one length that no chart shows any more.
delete from oncely.traffic
where seconds = :seconds and step < extract(epoch from clock_timestamp())::bigint - :keep_seconds;

delete from oncely.latency
where seconds = :seconds and step < extract(epoch from clock_timestamp())::bigint - :keep_seconds
