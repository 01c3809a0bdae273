select l.step, l.measure, l.queue, l.kind, l.buckets::text from oncely.latency l
where l.seconds = :seconds and l.step >= :since
