select j.id::text from oncely.lease l, unnest(l.ids) m (id)
join oncely.job j on j.id = m.id
where (cast(:kind as text) is null or j.kind = cast(:kind as text))
    and (cast(:queue as text) is null or j.queue = cast(:queue as text))
    and j.id < cast(:before as uuid)
order by j.id desc limit :limit
