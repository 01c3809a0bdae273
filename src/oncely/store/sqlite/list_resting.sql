select o.job_id from oncely_outcome o
join oncely_job j on j.id = o.job_id
where o.state = :state and o.state <> 'completed'
    and (:kind is null or j.kind = :kind)
    and (:queue is null or j.queue = :queue)
    and o.job_id < :before
order by o.job_id desc limit :limit
