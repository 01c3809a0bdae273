-- The lane in which a job waits: '' without a group, 'g:' and the key for the jobs of a group that
-- were due when they came, 'later' for those of any group that were not. A claim files the latter
-- into the lane of their group once they are due. So the jobs of a group that may not run now sit
-- in a lane of their own, and nobody has to step over them.
alter table oncely.ready add column lane text collate "C" not null default '';
update oncely.ready r set lane = 'later'
from oncely.job j where j.id = r.id and j.group_key is not null;
alter table oncely.ready drop constraint ready_pkey;
alter table oncely.ready add primary key (queue, priority, lane, due_at, id);

-- Whose limits a lease counts for: its queue, and its group if that is a limited one. '' stands
-- for jobs of several groups that had no limit when they were claimed.
alter table oncely.lease add column queue text collate "C", add column group_key text collate "C";
update oncely.lease l set queue = j.queue, group_key = ''
from oncely.job j where j.id = l.ids[1];
create index lease_by_queue on oncely.lease (queue);
create index lease_by_group on oncely.lease (group_key) where group_key is not null;

-- Where a row is, there is a limit or a pause. How much of a rate is left is in tokens, as of
-- refilled_at; how many jobs run is counted from the leases, and kept nowhere.
create table oncely.flow_limit (
    scope text collate "C" not null check (scope in ('queue', 'group')),
    name text collate "C" not null,
    paused boolean not null default false,
    concurrency integer check (concurrency > 0),
    rate_count integer check (rate_count > 0),
    rate_seconds double precision check (rate_seconds > 0),
    tokens double precision not null default 0,
    refilled_at timestamptz not null,
    since timestamptz not null,
    primary key (scope, name)
) with (fillfactor = 50);

-- What the jobs of a queue go by where neither they nor their kind say otherwise.
create table oncely.queue (
    name text collate "C" primary key,
    retry json,
    timeout_seconds double precision check (timeout_seconds > 0)
);
