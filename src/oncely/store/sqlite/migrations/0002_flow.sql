-- The lane in which a job waits: '' without a group, 'g:' and the key for the jobs of a group that
-- were due when they came, 'later' for those of any group that were not. A claim files the latter
-- into the lane of their group once they are due. So the jobs of a group that may not run now sit
-- in a lane of their own, and nobody has to step over them.
create table oncely_ready_with_lanes (
    queue text not null,
    priority integer not null,
    lane text not null,
    due_at integer not null,
    id text not null,
    attempts integer not null,
    crashes integer not null default 0,
    defers integer not null default 0,
    primary key (queue, priority, lane, due_at, id)
) without rowid;
insert into oncely_ready_with_lanes (queue, priority, lane, due_at, id, attempts, crashes, defers)
select r.queue, r.priority, case when j.group_key is null then '' else 'later' end, r.due_at, r.id,
    r.attempts, r.crashes, r.defers
from oncely_ready r join oncely_job j on j.id = r.id;
drop table oncely_ready;
alter table oncely_ready_with_lanes rename to oncely_ready;

-- Whose limits a lease counts for: its queue, and its group if that is a limited one. '' stands
-- for jobs of several groups that had no limit when they were claimed.
alter table oncely_lease add column queue text;
alter table oncely_lease add column group_key text;
update oncely_lease set group_key = '', queue = (
    select j.queue from oncely_job j where j.id = json_extract(oncely_lease.ids, '$[0]')
);
create index oncely_lease_by_queue on oncely_lease (queue);
create index oncely_lease_by_group on oncely_lease (group_key) where group_key is not null;

-- Where a row is, there is a limit or a pause. How much of a rate is left is in tokens, as of
-- refilled_at; how many jobs run is counted from the leases, and kept nowhere.
create table oncely_flow_limit (
    scope text not null check (scope in ('queue', 'group')),
    name text not null,
    paused integer not null default false,
    concurrency integer check (concurrency > 0),
    rate_count integer check (rate_count > 0),
    rate_seconds real check (rate_seconds > 0),
    tokens real not null default 0,
    refilled_at integer not null,
    since integer not null,
    primary key (scope, name)
) without rowid;

-- What the jobs of a queue go by where neither they nor their kind say otherwise.
create table oncely_queue (
    name text primary key,
    retry text,
    timeout_seconds real check (timeout_seconds > 0)
) without rowid;
