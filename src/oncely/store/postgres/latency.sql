select l.step, l.measure, l.queue, coalesce(k.kind, cast(:other as text)), l.buckets::text from oncely.latency l
left join oncely.counted_kind k on k.kind = l.kind
where l.seconds = :seconds and l.step >= :since
