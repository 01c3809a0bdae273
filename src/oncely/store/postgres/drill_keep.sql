-- What a drill found, with its job, and counted once. A job that is gone has no story any more.
with kept as (
    insert into oncely.drill (job_id, execution_id, at, epoch, worker, outcome, found)
    select j.id, :execution_id, clock_timestamp(), :epoch, :worker, :outcome,
        cast(cast(:found as text) as json)
    from oncely.job j where j.id = cast(:id as uuid)
    on conflict do nothing
    returning job_id
)
insert into oncely.tally (name, kind, label, n)
select c.name, j.kind, c.label, c.n
from kept k
cross join lateral (select x.kind from oncely.job x where x.id = k.job_id offset 0) j
cross join (values
    ('drills', cast(:outcome as text), 1::bigint),
    ('drill_effects', 'recognised', cast(:recognised as bigint)),
    ('drill_effects', 'repeated', cast(:repeated as bigint))
) c (name, label, n)
where c.n > 0
