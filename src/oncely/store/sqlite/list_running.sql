select j.id from oncely_lease l, json_each(l.ids) m
join oncely_job j on j.id = m.value
where (:kind is null or j.kind = :kind)
    and (:queue is null or j.queue = :queue)
    and j.id < :before
order by j.id desc limit :limit
