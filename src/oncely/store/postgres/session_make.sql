insert into oncely.session (id, kind, who, stamp, created_at, seen_at)
select :id, :kind, :who, :stamp, c.now, c.now
from (select clock_timestamp() as now) c
on conflict do nothing
