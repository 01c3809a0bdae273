select i.id::text, u.job_id::text, s.state
from json_to_recordset(cast(cast(:doc as text) as json)) as i (id uuid, kind text, unique_key text)
join oncely.unique_key u on u.kind = i.kind and u.key = i.unique_key
join oncely.standing s on s.job_id = u.job_id
