-- Moments are microseconds since 1970, lists are JSON; apart from that as on PostgreSQL.

-- What never changes about a job. No step between enqueue and prune touches this row.
create table oncely_job (
    id text primary key,
    kind text not null,
    queue text not null,
    payload text not null,
    priority integer not null,
    created_at integer not null,
    due_at integer not null,
    idempotency_key text,
    unique_key text,
    group_key text,
    max_attempts integer check (max_attempts between 1 and 20),
    timeout_seconds real check (timeout_seconds > 0),
    tags text
);

-- The jobs that wait, and nothing else: a claim deletes the row, a retry puts one back.
create table oncely_ready (
    queue text not null,
    priority integer not null,
    due_at integer not null,
    id text not null,
    attempts integer not null,
    crashes integer not null default 0,
    defers integer not null default 0,
    primary key (queue, priority, due_at, id)
) without rowid;

-- One row per claimed batch. Its epoch is the fence of all its jobs; the nonce keeps the fence
-- shut if a restored or promoted database hands out the same epoch again.
-- The first `started` of its ids were begun; the others were only fetched ahead.
create table oncely_lease (
    epoch integer primary key autoincrement,
    nonce integer not null,
    worker text not null,
    ids text not null,
    started integer not null default 0,
    claimed_at integer not null,
    expires_at integer not null
);

-- Where a job came to rest: at most one row per job, so at most one accepted settle per life.
create table oncely_outcome (
    job_id text primary key,
    state text not null check (state in ('completed', 'failed', 'cancelled', 'in_doubt')),
    epoch integer,
    attempt integer not null,
    worker text,
    started_at integer,
    ended_at integer not null,
    error text,
    result text
);
create index oncely_outcome_by_state on oncely_outcome (state, job_id) where state <> 'completed';

-- The deliveries that did not bring the job to rest. The last one says when the job is due next,
-- and what has been used up by then: attempts, crashes in a row, defers.
create table oncely_execution (
    job_id text not null,
    epoch integer not null,
    outcome text not null,
    attempt integer not null,
    worker text,
    started_at integer,
    ended_at integer not null,
    due_at integer not null,
    attempts integer not null,
    crashes integer not null default 0,
    defers integer not null default 0,
    nonce integer,
    error text,
    primary key (job_id, epoch)
) without rowid;

-- The enqueue calls that are remembered, also past the life of their job.
create table oncely_idempotency_key (
    queue text not null,
    key text not null,
    job_id text not null,
    fingerprint text not null,
    created_at integer not null,
    lent integer not null,
    state text,
    expires_at integer,
    primary key (queue, key)
) without rowid;
create index oncely_idempotency_key_by_expiry on oncely_idempotency_key (expires_at)
    where expires_at is not null;
-- A call that was skipped by a unique key is remembered under the id of the holder.
create index oncely_idempotency_key_lent on oncely_idempotency_key (job_id) where lent;

-- The work in the pipeline, held while the job is active.
create table oncely_unique_key (
    kind text not null,
    key text not null,
    job_id text not null,
    primary key (kind, key)
) without rowid;

create view oncely_clock as
select cast(strftime('%s', 'now') as integer) * 1000000
    + cast(substr(strftime('%f', 'now'), 4) as integer) * 1000 as now;

-- How a job stands now. A job that has no outcome and is in no lease waits.
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
    end) as state
from oncely_job j;
