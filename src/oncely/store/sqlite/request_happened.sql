-- A person's answer is the answer to every repeat, for as long as was declared. It has no owner: a
-- server that was only slow does not overwrite what a client may have been told.
update oncely_request
set state = 'done', owner = -1, ended_at = (select now from oncely_clock),
    expires_at = (select now from oncely_clock) + expires_at - begun_at,
    status = :status, headers = :headers, body = :body
where scope = :scope and key = :key and state = 'in_flight'
    and held_until <= (select now from oncely_clock)
returning owner
