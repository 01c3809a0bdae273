-- Jobs of groups that have become due go to the lane of their group.
update oncely.ready r set lane = 'g:' || j.group_key
from oncely.job j
where j.id = r.id and r.ctid = any (array(
    select x.ctid from oncely.ready x
    where x.queue = :queue and x.priority = :priority and x.lane = 'later'
        and x.due_at <= (select clock_timestamp())
    order by x.due_at, x.id limit :limit
    for update skip locked
))
