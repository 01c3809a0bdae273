select l.worker, l.epoch, l.nonce from oncely_lease l
where l.ack_until <= (select now from oncely_clock)
order by l.ack_until limit :limit
