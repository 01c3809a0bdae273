-- A row if this execution is the one that completed its job, nobody has stopped drills, and the
-- queue has no limits: a drill would not count there.
select 1 from oncely_outcome o cross join oncely_job j on j.id = o.job_id
where o.job_id = :id and o.epoch = :epoch and o.state = 'completed'
    and not exists (select 1 from oncely_drill_switch s where s.stopped)
    and not exists (
        select 1 from oncely_flow_limit f where f.scope = 'queue' and f.name = j.queue
    )
