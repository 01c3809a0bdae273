-- Give up a job that is held. What is in doubt of it stays so in the ledger, and can still be
-- answered.
delete from oncely_unique_key
where (kind, key, job_id) in (
    select j.kind, j.unique_key, j.id
    from oncely_outcome o join oncely_job j on j.id = o.job_id
    where o.job_id = :id and o.state = 'in_doubt'
);

insert into oncely_execution (
    job_id, epoch, outcome, attempt, worker, started_at, ended_at, due_at, attempts, error
)
select o.job_id, o.epoch, 'in_doubt', o.attempt, o.worker, o.started_at, o.ended_at, o.ended_at,
    o.attempt - 1, o.error
from oncely_outcome o where o.job_id = :id and o.state = 'in_doubt';

update oncely_outcome
set state = 'cancelled', epoch = null, worker = null, started_at = null, error = null,
    ended_at = (select now from oncely_clock)
where job_id = :id and state = 'in_doubt'
returning job_id
