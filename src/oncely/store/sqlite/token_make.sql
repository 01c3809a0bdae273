insert into oncely_token (id, digest, name, scopes, queues, created_at, expires_at)
select :id, :digest, :name, :scopes, :queues, c.now, c.now + :life_us
from oncely_clock c where true
on conflict do nothing
returning id
