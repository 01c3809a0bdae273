-- The receiver has the job and will say how it ended. Its lease is nobody's to renew, and stands a
-- while longer than the receiver has time, so that what is too late counts as that and not as a
-- crash.
update oncely_lease
set worker = worker || '/ack', ack_until = (select now from oncely_clock) + :ack_us,
    expires_at = (select now from oncely_clock) + :ack_us + :beyond_us
where epoch = :epoch and nonce = :nonce and ids = json_array(:id) and ack_until is null
returning epoch
