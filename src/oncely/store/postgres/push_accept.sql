-- The receiver has the job and will say how it ended. Its lease is nobody's to renew, and stands a
-- while longer than the receiver has time, so that what is too late counts as that and not as a
-- crash.
with clock as materialized (select clock_timestamp() as now)
update oncely.lease l
set worker = l.worker || '/ack', ack_until = c.now + :ack_us * interval '1 microsecond',
    expires_at = c.now + (:ack_us + :beyond_us) * interval '1 microsecond'
from clock c
where l.epoch = :epoch and l.nonce = :nonce and l.ids = array[cast(:id as uuid)]
    and l.ack_until is null
returning l.epoch
