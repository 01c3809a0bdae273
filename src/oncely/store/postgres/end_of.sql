-- How this execution ended, if its end was written by whoever ran it.
select o.state from oncely.outcome o where o.job_id = cast(:id as uuid) and o.epoch = :epoch
union all
select e.outcome from oncely.execution e
where e.job_id = cast(:id as uuid) and e.epoch = :epoch and e.outcome <> 'crashed'
