select l.step, l.measure, l.queue, l.kind, l.buckets from oncely_latency l
where l.seconds = :seconds and l.step >= :since
