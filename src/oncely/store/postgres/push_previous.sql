-- Of each job that was delivered before: the last delivery that was sent, if any was.
select d.id, x.outcome, x.type
from json_array_elements_text(cast(:doc as json)) d (id)
left join lateral (
    select e.outcome, e.error ->> 'type' as type from oncely.execution e
    where e.job_id = cast(d.id as uuid) and coalesce(e.error ->> 'type', '') <> :not_sent
    order by e.epoch desc limit 1
) x on true
-- not by exists, for which the planner may read all executions into a hash
where (select true from oncely.execution e where e.job_id = cast(d.id as uuid) limit 1)
