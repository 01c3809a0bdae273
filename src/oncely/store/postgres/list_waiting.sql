select r.id::text from oncely.ready r
join oncely.job j on j.id = r.id
where (r.due_at > clock_timestamp()) = (cast(:state as text) = 'scheduled')
    and (cast(:kind as text) is null or j.kind = cast(:kind as text))
    and (cast(:queue as text) is null or r.queue = cast(:queue as text))
    and r.id < cast(:before as uuid)
order by r.id desc limit :limit
