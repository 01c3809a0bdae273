select j.id::text from oncely.job j
left join oncely.outcome o on o.job_id = j.id
where (cast(:state as text) is null or o.state = cast(:state as text))
    and (cast(:kind as text) is null or j.kind = cast(:kind as text))
    and (cast(:queue as text) is null or j.queue = cast(:queue as text))
    and j.id < cast(:before as uuid)
order by j.id desc limit :limit
