select o.job_id::text, j.kind, j.queue, e.type, left(e.message, 320),
    (extract(epoch from o.ended_at) * 1000000)::bigint
from oncely.outcome o
cross join lateral (select * from oncely.job j where j.id = o.job_id offset 0) j
left join lateral json_to_record(o.error) as e (type text, message text) on true
where o.state = cast(:state as text) and o.state <> 'completed' and o.job_id > cast(:after as uuid)
order by o.job_id limit :limit
