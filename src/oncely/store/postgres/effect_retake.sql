-- The intent of an earlier execution becomes this one's, under the fence. The lease may be renewed
-- meanwhile.
with held as materialized (
    select l.epoch from oncely.lease l
    where l.epoch = :epoch and l.nonce = :nonce and cast(:id as uuid) = any (l.ids)
    for key share
)
update oncely.effect e set epoch = h.epoch, state = 'begun'
from held h
where e.job_id = cast(:id as uuid) and e.name = :name and e.state in ('begun', 'in_doubt')
returning e.name
