-- What a replay finds in the ledgers of these jobs.
select e.name, e.verb,
    count(*) filter (where e.state = 'done'),
    count(*) filter (where e.state <> 'done' and e.verb = 'step'),
    count(*) filter (where e.state <> 'done' and e.verb <> 'step')
from json_to_recordset(cast(:doc as json)) as i (id uuid)
cross join lateral (select * from oncely.effect e where e.job_id = i.id offset 0) e
group by e.name, e.verb
order by min(e.begun_at), e.name
