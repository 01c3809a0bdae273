-- The ledger of a job begins anew. What was in it is remembered.
insert into oncely_resolution (job_id, name, at, happened, by_whom, forgotten)
select e.job_id, e.name, (select now from oncely_clock), e.state = 'done', :by_whom, 1
from oncely_effect e where e.job_id = :id;

select e.name from oncely_effect e where e.job_id = :id order by e.name;

delete from oncely_effect where job_id = :id
