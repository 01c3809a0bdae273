-- How far back so many jobs in this state go.
select o.job_id::text from oncely.outcome o
where o.state = cast(:state as text) and o.state <> 'completed'
    and o.job_id < cast(:before as uuid) and o.job_id >= cast(:lowest as uuid)
order by o.job_id desc limit 1 offset :looked
