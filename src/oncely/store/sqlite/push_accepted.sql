select epoch from oncely_lease
where epoch = :epoch and nonce = :nonce and ids = json_array(:id) and ack_until is not null
