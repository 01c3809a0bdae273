-- The next outcomes in the order of job ids, and whether their time is over. They are taken first:
-- joined at once, all that there are would be joined and sorted.
with next as materialized (
    select o.job_id, o.state, o.ended_at from oncely.outcome o
    where o.job_id > cast(:after as uuid) and o.job_id < cast(:before as uuid)
    order by o.job_id limit :limit
    for update skip locked
)
select n.job_id::text, coalesce(
    n.ended_at <= clock_timestamp() - r.value::bigint * interval '1 microsecond', false
)
from next n
left join json_each_text(cast(:retention_us as json)) r on r.key = n.state
order by n.job_id
