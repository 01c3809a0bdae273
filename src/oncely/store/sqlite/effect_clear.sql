-- It did not happen, and the execution that began it knows.
delete from oncely_effect
where job_id = :id and name = :name and epoch = :epoch and state <> 'done'
