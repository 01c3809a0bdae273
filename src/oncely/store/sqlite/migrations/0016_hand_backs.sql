-- Defers are bounded by the time since the first of them in a row. How often in a row a job went back
-- because the store failed is counted by itself: that uses up no attempt.
alter table oncely_execution add column first_deferred_at integer;
alter table oncely_execution add column hand_backs integer not null default 0;

drop view oncely_standing;
create view oncely_standing as
select
    j.id as job_id,
    coalesce((
        select e.due_at from oncely_execution e where e.job_id = j.id order by e.epoch desc limit 1
    ), j.due_at) as due_at,
    coalesce((
        select e.attempts from oncely_execution e where e.job_id = j.id order by e.epoch desc limit 1
    ), 0) as attempts,
    coalesce((
        select e.crashes from oncely_execution e where e.job_id = j.id order by e.epoch desc limit 1
    ), 0) as crashes,
    coalesce((
        select e.defers from oncely_execution e where e.job_id = j.id order by e.epoch desc limit 1
    ), 0) as defers,
    coalesce((select o.state from oncely_outcome o where o.job_id = j.id), case
        when j.id in (select m.value from oncely_lease l, json_each(l.ids) m) then 'running'
        when coalesce((
            select e.due_at from oncely_execution e
            where e.job_id = j.id order by e.epoch desc limit 1
        ), j.due_at) > (select now from oncely_clock) then 'scheduled'
        else 'pending'
    end) as state,
    (
        select e.first_deferred_at from oncely_execution e
        where e.job_id = j.id order by e.epoch desc limit 1
    ) as first_deferred_at,
    coalesce((
        select e.hand_backs from oncely_execution e where e.job_id = j.id order by e.epoch desc limit 1
    ), 0) as hand_backs
from oncely_job j;
