-- All that waits is read: only where that is little.
select r.id from oncely_ready r
join oncely_job j on j.id = r.id
where (r.due_at > (select now from oncely_clock)) = (:state = 'scheduled')
    and r.id < :before and r.id >= :lowest
    and (:kind is null or j.kind = :kind)
    and (:queue is null or j.queue = :queue)
    and (:group_key is null or j.group_key = :group_key)
    and (:key is null or j.idempotency_key = :key or j.unique_key = :key)
    and (:tag is null or exists (select 1 from json_each(j.tags) t where t.value = :tag))
order by r.id desc limit :limit
