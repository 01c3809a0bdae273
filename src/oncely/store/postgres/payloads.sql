select j.id::text, j.payload::text
from json_to_recordset(cast(cast(:doc as text) as json)) as i (id uuid)
cross join lateral (select * from oncely.job j where j.id = i.id limit 1) j
