-- Jobs of groups that have become due go to the lane of their group.
with due as materialized (
    select x.ctid as at, x.id from oncely.ready x
    where x.queue = :queue and x.priority = :priority and x.lane = 'later'
        and x.due_at <= (select clock_timestamp())
    order by x.due_at, x.id limit :limit
    for update skip locked
),
filed as materialized (
    select d.at, j.group_key
    from due d
    -- One by one, whatever was the size of the table when this was planned.
    cross join lateral (select k.group_key from oncely.job k where k.id = d.id offset 0) j
)
update oncely.ready r set lane = 'g:' || f.group_key from filed f where r.ctid = f.at
