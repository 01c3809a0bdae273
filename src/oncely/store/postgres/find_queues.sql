-- By lateral joins with a limit, as wherever many are looked up.
select j.id::text, j.queue
from (
    select distinct d.id from json_to_recordset(cast(cast(:doc as text) as json)) as d (id uuid)
) i
cross join lateral (
    select j.id, j.queue from oncely.job j where j.id = i.id limit 1
) j
