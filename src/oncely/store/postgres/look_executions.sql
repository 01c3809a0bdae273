select
    e.job_id::text, e.epoch, e.attempt, e.outcome, e.worker,
    (extract(epoch from e.started_at) * 1000000)::bigint,
    (extract(epoch from e.ended_at) * 1000000)::bigint,
    e.error::text
from json_to_recordset(cast(:doc as json)) as i (id uuid)
cross join lateral (
    select * from oncely.execution e where e.job_id = i.id order by e.epoch offset 0
) e
