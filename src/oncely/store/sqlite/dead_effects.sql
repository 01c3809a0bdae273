-- What a replay finds in the ledgers of these jobs.
select e.name, e.verb,
    count(*) filter (where e.state = 'done'),
    count(*) filter (where e.state <> 'done' and e.verb = 'step'),
    count(*) filter (where e.state <> 'done' and e.verb <> 'step')
from json_each(:doc) i
join oncely_effect e on e.job_id = json_extract(i.value, '$.id')
group by e.name, e.verb
order by min(e.begun_at), e.name
