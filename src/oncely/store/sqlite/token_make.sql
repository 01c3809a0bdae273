-- The clock ticks in milliseconds. Tokens of one of them are told apart by the digits below, so that
-- they are listed in the order in which they were made.
insert into oncely_token (id, digest, name, scopes, queues, created_at, expires_at)
select :id, :digest, :name, :scopes, :queues, coalesce((
    select max(t.created_at) + 1 from oncely_token t
    where t.created_at >= c.now and t.created_at < c.now + 1000
), c.now), c.now + :life_us
from oncely_clock c where true
on conflict do nothing
returning id
