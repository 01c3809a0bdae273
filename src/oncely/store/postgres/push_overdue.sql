select l.worker, l.epoch, l.nonce from oncely.lease l
where l.ack_until <= (select clock_timestamp())
order by l.ack_until limit :limit
for update skip locked
