-- Only of its owner: who comes after a successor has nothing to say any more.
update oncely.request
set state = 'done', ended_at = clock_timestamp(),
    expires_at = clock_timestamp() + :keep_us * interval '1 microsecond',
    status = :status, headers = cast(:headers as text), body = cast(:body as bytea)
where scope = :scope and key = :key and owner = :owner
returning owner
