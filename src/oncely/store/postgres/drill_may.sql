-- A row if this execution is the one that completed its job, nobody has stopped drills, and the
-- queue has no limits: a drill would not count there.
select 1 from oncely.outcome o
cross join lateral (select k.queue from oncely.job k where k.id = o.job_id offset 0) j
where o.job_id = cast(:id as uuid) and o.epoch = :epoch and o.state = 'completed'
    and not exists (select from oncely.drill_switch s where s.stopped)
    and not exists (
        select from oncely.flow_limit f where f.scope = 'queue' and f.name = j.queue
    )
