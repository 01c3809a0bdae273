-- The next outcomes in the order of job ids, and whether their time is over.
select o.job_id, coalesce(o.ended_at <= (select now from oncely_clock) - r.value, 0)
from oncely_outcome o
left join json_each(:retention_us) r on r.key = o.state
where o.job_id > :after and o.job_id < :before
order by o.job_id limit :limit
