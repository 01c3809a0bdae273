-- Locked, so that an answer and a doubt about the same job cannot pass each other by.
select e.name, e.state from oncely.effect e where e.job_id = cast(:id as uuid)
order by e.name
for update
