select j.id from oncely_job j
where j.id < :before and j.id >= :lowest
    and (:kind is null or j.kind = :kind)
    and (:queue is null or j.queue = :queue)
    and (:group_key is null or j.group_key = :group_key)
    and (:key is null or j.idempotency_key = :key or j.unique_key = :key)
    and (:tag is null or exists (select 1 from json_each(j.tags) t where t.value = :tag))
    and exists (
        select 1 from oncely_outcome o where o.job_id = j.id and o.state = 'completed'
    )
order by j.id desc limit :limit
