-- The first repeats of a job are kept; n counts those in the document. What is there already is not
-- counted in a serializable transaction: two of the caller's that read and add here would each be
-- the reason to undo the other.
insert into oncely.repeat (job_id, boundary, id, at, key)
select i.job_id, 'enqueue', i.id, clock_timestamp(), i.key
from json_to_recordset(cast(cast(:doc as text) as json)) as i (
    id text, job_id uuid, key text, n bigint
)
-- One by one, whatever was the size of the table when this was planned.
cross join lateral (select k.id from oncely.job k where k.id = i.job_id offset 0) j
where :limit >= i.n + case current_setting('transaction_isolation') when 'serializable' then 0 else (
    select count(*) from (
        select from oncely.repeat r
        where r.job_id = i.job_id and r.boundary = 'enqueue' limit :limit
    ) kept
) end
on conflict do nothing
