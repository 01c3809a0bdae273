-- How far back so many jobs in this state go.
select o.job_id from oncely_outcome o
where o.state = :state and o.state <> 'completed' and o.job_id < :before and o.job_id >= :lowest
order by o.job_id desc limit 1 offset :looked
