-- Mark the request as in flight, if its key is free: never seen, forgotten by now or, if that is
-- declared, left behind by an owner that said nothing for too long.
insert into oncely.request as r (
    scope, key, fingerprint, owner, state, begun_at, held_until, expires_at
)
select :scope, :key, :fingerprint, :owner, 'in_flight', c.now,
    c.now + :hold_us * interval '1 microsecond', c.now + :keep_us * interval '1 microsecond'
from (select clock_timestamp() as now) c
on conflict (scope, key) do update
set fingerprint = excluded.fingerprint, owner = excluded.owner, state = 'in_flight',
    begun_at = excluded.begun_at, held_until = excluded.held_until,
    expires_at = excluded.expires_at, ended_at = null, status = null, headers = null, body = null
where r.expires_at <= excluded.begun_at or (
    cast(:run_unknown as boolean) and r.state = 'in_flight' and r.held_until <= excluded.begun_at
    and r.fingerprint = excluded.fingerprint
)
returning owner
