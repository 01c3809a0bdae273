select o.job_id::text from oncely.outcome o
join oncely.job j on j.id = o.job_id
where o.state = cast(:state as text) and o.state <> 'completed'
    and (cast(:kind as text) is null or j.kind = cast(:kind as text))
    and (cast(:queue as text) is null or j.queue = cast(:queue as text))
    and o.job_id < cast(:before as uuid)
order by o.job_id desc limit :limit
