-- As if it had never come.
delete from oncely_request
where scope = :scope and key = :key and owner = :owner and state = 'in_flight'
returning owner
