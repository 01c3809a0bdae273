insert into oncely_session (id, kind, who, stamp, created_at, seen_at)
select :id, :kind, :who, :stamp, c.now, c.now
from oncely_clock c where true
on conflict do nothing
