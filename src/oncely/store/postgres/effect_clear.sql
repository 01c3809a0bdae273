-- It did not happen, and the execution that began it knows. After a failover another one may have
-- the same epoch: then the intent is that one's.
delete from oncely.effect
where job_id = cast(:id as uuid) and name = :name and epoch = :epoch and state <> 'done'
    and not exists (select from oncely.lease l where l.epoch = :epoch and l.nonce <> :nonce)
