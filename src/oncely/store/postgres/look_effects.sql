select e.job_id::text, e.name, e.verb, e.state, e.source, e.epoch,
    (extract(epoch from e.begun_at) * 1000000)::bigint,
    (extract(epoch from e.ended_at) * 1000000)::bigint,
    e.arguments, e.result::text
from json_to_recordset(cast(:doc as json)) as i (id uuid)
cross join lateral (
    select * from oncely.effect e where e.job_id = i.id order by e.begun_at, e.name offset 0
) e
