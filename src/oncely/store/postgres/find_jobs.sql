select s.job_id::text, s.state from oncely.standing s
where s.job_id in (
    select i.id from json_to_recordset(cast(cast(:doc as text) as json)) as i (id uuid)
)
