select i.id::text, u.job_id::text, s.state
from json_to_recordset(cast(cast(:doc as text) as json)) as i (id uuid, kind text, unique_key text)
-- One by one, whatever was the size of the tables when this was planned.
cross join lateral (
    select k.job_id from oncely.unique_key k where k.kind = i.kind and k.key = i.unique_key offset 0
) u
cross join lateral (select t.state from oncely.standing t where t.job_id = u.job_id offset 0) s
