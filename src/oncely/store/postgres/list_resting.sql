select o.job_id::text from oncely.outcome o
cross join lateral (select * from oncely.job j where j.id = o.job_id offset 0) j
where o.state = cast(:state as text) and o.state <> 'completed'
    and o.job_id < cast(:before as uuid) and o.job_id >= cast(:lowest as uuid)
    and (cast(:kind as text) is null or j.kind = cast(:kind as text))
    and (cast(:queue as text) is null or j.queue = cast(:queue as text))
    and (cast(:group_key as text) is null or j.group_key = cast(:group_key as text))
    and (
        cast(:key as text) is null
        or j.idempotency_key = cast(:key as text) or j.unique_key = cast(:key as text)
    )
    and (
        cast(:tag as text) is null
        or exists (select from json_array_elements_text(j.tags) t where t = cast(:tag as text))
    )
order by o.job_id desc limit :limit
