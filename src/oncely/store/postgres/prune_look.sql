-- The next outcomes in the order of job ids, and whether their time is over.
select o.job_id::text, coalesce(
    o.ended_at <= clock_timestamp() - r.value::bigint * interval '1 microsecond', false
)
from oncely.outcome o
left join json_each_text(cast(:retention_us as json)) r on r.key = o.state
where o.job_id > cast(:after as uuid) and o.job_id < cast(:before as uuid)
order by o.job_id limit :limit
for update of o skip locked
