-- The dead-letter queue, the oldest first, from one job on.
select o.job_id::text from oncely.outcome o
join oncely.job j on j.id = o.job_id
where o.state = 'failed' and o.state <> 'completed' and o.job_id > cast(:after as uuid)
    and (cast(:kind as text) is null or j.kind = cast(:kind as text))
    and (cast(:queue as text) is null or j.queue = cast(:queue as text))
    and (
        cast(:error as text) is null
        or position(
            cast(:error as text) in concat(o.error ->> 'type', ': ', o.error ->> 'message')
        ) > 0
    )
order by o.job_id limit :limit
