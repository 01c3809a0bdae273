-- Take in one job that is due now and has no key and no group. If its id is there already, it fails.
-- What comes first here is done last: to wake somebody is, for it is of use only after the commit.
with counted as (
    insert into oncely.tally (name, kind, label, n)
    select 'enqueued', cast(:kind as text), '', 1 where oncely.wake(:queue) is not null
),
waiting as (
    insert into oncely.ready (queue, priority, due_at, id, attempts)
    values (:queue, :priority, statement_timestamp(), :id, 0)
)
insert into oncely.job (id, kind, queue, payload, priority, created_at, due_at, traceparent)
values (
    :id, :kind, :queue, :payload, :priority, statement_timestamp(), statement_timestamp(),
    :traceparent
)
