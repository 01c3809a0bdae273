select epoch from oncely.lease
where epoch = :epoch and nonce = :nonce and ids = array[cast(:id as uuid)] and ack_until is not null
