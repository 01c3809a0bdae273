-- By lateral joins with a limit, as wherever many are looked up: a plan that was made while the
-- tables were empty would read them whole when they no longer are.
select s.job_id::text, s.state
from (
    select distinct d.id from json_to_recordset(cast(cast(:doc as text) as json)) as d (id uuid)
) i
cross join lateral (
    select s.job_id, s.state from oncely.standing s where s.job_id = i.id limit 1
) s
