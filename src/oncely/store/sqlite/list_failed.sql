-- The dead-letter queue, the oldest first, from one job on.
select o.job_id from oncely_outcome o
join oncely_job j on j.id = o.job_id
where o.state = 'failed' and o.state <> 'completed' and o.job_id > :after
    and (:kind is null or j.kind = :kind)
    and (:queue is null or j.queue = :queue)
    and (
        :error is null
        or instr(
            json_extract(o.error, '$.type') || ': ' || json_extract(o.error, '$.message'), :error
        ) > 0
    )
order by o.job_id limit :limit
