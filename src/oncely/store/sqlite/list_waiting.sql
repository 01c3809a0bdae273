select r.id from oncely_ready r
join oncely_job j on j.id = r.id
where (r.due_at > (select now from oncely_clock)) = (:state = 'scheduled')
    and (:kind is null or j.kind = :kind)
    and (:queue is null or r.queue = :queue)
    and r.id < :before
order by r.id desc limit :limit
