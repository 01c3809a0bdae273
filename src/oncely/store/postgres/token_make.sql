insert into oncely.token (id, digest, name, scopes, queues, created_at, expires_at)
select :id, :digest, cast(:name as text), :scopes, cast(:queues as text), c.now,
    c.now + cast(:life_us as bigint) * interval '1 microsecond'
from (select clock_timestamp() as now) c
on conflict do nothing
returning id
