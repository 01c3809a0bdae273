select j.id from oncely_job j
left join oncely_outcome o on o.job_id = j.id
where (:state is null or o.state = :state)
    and (:kind is null or j.kind = :kind)
    and (:queue is null or j.queue = :queue)
    and j.id < :before
order by j.id desc limit :limit
