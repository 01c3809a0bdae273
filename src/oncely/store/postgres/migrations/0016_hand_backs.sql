-- Defers are bounded by the time since the first of them in a row. How often in a row a job went back
-- because the store failed is counted by itself: that uses up no attempt.
alter table oncely.execution
    add column first_deferred_at timestamptz,
    add column hand_backs smallint not null default 0;
alter table oncely.ready add column hand_backs smallint not null default 0;

create or replace view oncely.standing as
select
    j.id as job_id,
    coalesce(x.due_at, j.due_at) as due_at,
    coalesce(x.attempts, 0) as attempts,
    coalesce(x.crashes, 0) as crashes,
    coalesce(x.defers, 0) as defers,
    case
        when o.state is not null then o.state
        when j.id in (select unnest(l.ids) from oncely.lease l) then 'running'
        when coalesce(x.due_at, j.due_at) > statement_timestamp() then 'scheduled'
        else 'pending'
    end as state,
    x.first_deferred_at,
    coalesce(x.hand_backs, 0) as hand_backs
from oncely.job j
left join oncely.outcome o on o.job_id = j.id
left join lateral (
    select e.due_at, e.attempts, e.crashes, e.defers, e.first_deferred_at, e.hand_backs
    from oncely.execution e
    where e.job_id = j.id order by e.epoch desc limit 1
) x on true;
