select r.job_id::text, r.name, (extract(epoch from r.at) * 1000000)::bigint, r.happened, r.by_whom,
    r.note, r.forgotten
from json_to_recordset(cast(:doc as json)) as i (id uuid)
cross join lateral (
    select * from oncely.resolution r where r.job_id = i.id order by r.at offset 0
) r
