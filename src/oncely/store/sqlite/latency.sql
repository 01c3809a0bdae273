select l.step, l.measure, l.queue, coalesce(k.kind, :other), l.buckets from oncely_latency l
left join oncely_counted_kind k on k.kind = l.kind
where l.seconds = :seconds and l.step >= :since
