-- Mark the request as in flight, if its key is free: never seen, forgotten by now or, if that is
-- declared, left behind by an owner that said nothing for too long.
insert into oncely_request (
    scope, key, fingerprint, owner, state, begun_at, held_until, expires_at
)
select :scope, :key, :fingerprint, :owner, 'in_flight', c.now, c.now + :hold_us, c.now + :keep_us
from oncely_clock c where true
on conflict (scope, key) do update
set fingerprint = excluded.fingerprint, owner = excluded.owner, state = 'in_flight',
    begun_at = excluded.begun_at, held_until = excluded.held_until,
    expires_at = excluded.expires_at, ended_at = null, status = null, headers = null, body = null
where expires_at <= excluded.begun_at or (
    :run_unknown and state = 'in_flight' and held_until <= excluded.begun_at
    and fingerprint = excluded.fingerprint
)
returning owner
