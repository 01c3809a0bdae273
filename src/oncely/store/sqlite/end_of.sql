-- How this execution ended, if its end was written by whoever ran it.
select o.state from oncely_outcome o where o.job_id = :id and o.epoch = :epoch
union all
select e.outcome from oncely_execution e
where e.job_id = :id and e.epoch = :epoch and e.outcome <> 'crashed'
