-- All that waits is read: only where that is little.
select r.id::text from oncely.ready r
join oncely.job j on j.id = r.id
where (r.due_at > clock_timestamp()) = (cast(:state as text) = 'scheduled')
    and r.id < cast(:before as uuid) and r.id >= cast(:lowest as uuid)
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
order by r.id desc limit :limit
