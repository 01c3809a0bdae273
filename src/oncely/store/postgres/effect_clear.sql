-- It did not happen, and the execution that began it knows.
delete from oncely.effect
where job_id = cast(:id as uuid) and name = :name and epoch = :epoch and state <> 'done'
