select e.name, e.state from oncely_effect e where e.job_id = :id order by e.name
