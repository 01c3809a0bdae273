-- What was recognised in a delivery: its end that came too late, and the effects that it found done
-- and did not do again. Each is counted once, and the first of a job are kept; n counts those of it
-- in the document. Whose they were is known from what became of the execution.
with input as materialized (
    select * from json_to_recordset(cast(cast(:doc as text) as json)) as d (
        job_id uuid, boundary text, id text, outcome text, epoch bigint, attempt smallint, n bigint
    )
),
fresh as materialized (
    select i.*, j.kind, coalesce(
        (select e.worker from oncely.execution e where e.job_id = i.job_id and e.epoch = i.epoch),
        (select o.worker from oncely.outcome o where o.job_id = i.job_id and o.epoch = i.epoch)
    ) as worker
    from input i
    -- One by one, whatever was the size of the tables when this was planned.
    cross join lateral (select k.kind from oncely.job k where k.id = i.job_id offset 0) j
    where (
        select r.id from oncely.repeat r
        where r.job_id = i.job_id and r.boundary = i.boundary and r.id = i.id
    ) is null
),
counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'deduplicated', kind, boundary, count(*) from fresh group by kind, boundary
)
insert into oncely.repeat (job_id, boundary, id, at, outcome, epoch, attempt, worker)
select job_id, boundary, id, clock_timestamp(), outcome, epoch, attempt, worker
from fresh f
where :limit >= f.n + (
    select count(*) from oncely.repeat r where r.job_id = f.job_id and r.boundary = f.boundary
)
on conflict do nothing
