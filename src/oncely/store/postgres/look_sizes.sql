-- How large jobs are, without reading them out.
select j.id::text, octet_length(j.payload::text) + coalesce(octet_length(o.result::text), 0)
from json_to_recordset(cast(cast(:doc as text) as json)) as i (id uuid)
cross join lateral (select * from oncely.job j where j.id = i.id limit 1) j
left join lateral (select * from oncely.outcome o where o.job_id = j.id limit 1) o on true
