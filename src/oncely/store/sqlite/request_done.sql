-- Only of its owner: who comes after a successor has nothing to say any more.
update oncely_request
set state = 'done', ended_at = (select now from oncely_clock),
    expires_at = (select now from oncely_clock) + :keep_us,
    status = :status, headers = :headers, body = :body
where scope = :scope and key = :key and owner = :owner
returning owner
