-- Of each job that was delivered before: the last delivery that was sent, if any was.
select d.value, x.outcome, json_extract(x.error, '$.type')
from json_each(:doc) d
left join oncely_execution x on x.job_id = d.value and x.epoch = (
    select max(e.epoch) from oncely_execution e
    where e.job_id = d.value and coalesce(json_extract(e.error, '$.type'), '') <> :not_sent
)
where exists (select 1 from oncely_execution e where e.job_id = d.value)
