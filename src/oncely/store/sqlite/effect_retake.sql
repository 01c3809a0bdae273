-- The intent of an earlier execution becomes this one's, under the fence.
update oncely_effect set epoch = :epoch, state = 'begun'
where job_id = :id and name = :name and state in ('begun', 'in_doubt') and exists (
    select 1 from oncely_lease l cross join json_each(l.ids) m
    where l.epoch = :epoch and l.nonce = :nonce and m.value = :id
)
returning name
