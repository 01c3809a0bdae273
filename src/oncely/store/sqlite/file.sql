-- Jobs of groups that have become due go to the lane of their group.
update oncely_ready
set lane = 'g:' || (select j.group_key from oncely_job j where j.id = oncely_ready.id)
where (queue, priority, lane, due_at, id) in (
    select x.queue, x.priority, x.lane, x.due_at, x.id from oncely_ready x
    where x.queue = :queue and x.priority = :priority and x.lane = 'later'
        and x.due_at <= (select now from oncely_clock)
    order by x.due_at, x.id limit :limit
)
