select o.job_id from oncely_outcome o
join oncely_job j on j.id = o.job_id
where o.state = :state and o.state <> 'completed' and o.job_id < :before and o.job_id >= :lowest
    and (:kind is null or j.kind = :kind)
    and (:queue is null or j.queue = :queue)
    and (:group_key is null or j.group_key = :group_key)
    and (:key is null or j.idempotency_key = :key or j.unique_key = :key)
    and (:tag is null or exists (select 1 from json_each(j.tags) t where t.value = :tag))
order by o.job_id desc limit :limit
