-- A person's answer is the answer to every repeat, for as long as was declared. It has no owner: a
-- server that was only slow does not overwrite what a client may have been told.
update oncely.request
set state = 'done', owner = -1, ended_at = clock_timestamp(),
    expires_at = clock_timestamp() + (expires_at - begun_at),
    status = :status, headers = cast(:headers as text), body = cast(:body as bytea)
where scope = :scope and key = :key and state = 'in_flight' and held_until <= clock_timestamp()
returning owner
