-- What never changes about a job. No step between enqueue and prune touches this row.
create table oncely.job (
    id uuid primary key,
    kind text collate "C" not null,
    queue text collate "C" not null,
    payload json not null,
    priority smallint not null,
    created_at timestamptz not null,
    due_at timestamptz not null,
    idempotency_key text collate "C",
    unique_key text collate "C",
    group_key text collate "C",
    max_attempts smallint check (max_attempts between 1 and 20),
    timeout_seconds double precision check (timeout_seconds > 0),
    tags json
);

-- The jobs that wait, and nothing else: a claim deletes the row, a retry puts one back.
create table oncely.ready (
    queue text collate "C" not null,
    priority smallint not null,
    due_at timestamptz not null,
    id uuid not null,
    attempts smallint not null,
    crashes smallint not null default 0,
    defers smallint not null default 0,
    primary key (queue, priority, due_at, id)
);

-- One row per claimed batch. Its epoch is the fence of all its jobs; the nonce keeps the fence
-- shut if a restored or promoted database hands out the same epoch again.
-- The first `started` of its ids were begun; the others were only fetched ahead.
create table oncely.lease (
    epoch bigint generated always as identity primary key,
    nonce bigint not null,
    worker text not null,
    ids uuid[] not null,
    started integer not null default 0,
    claimed_at timestamptz not null,
    expires_at timestamptz not null
) with (fillfactor = 50, toast_tuple_target = 8160);

-- Where a job came to rest: at most one row per job, so at most one accepted settle per life.
create table oncely.outcome (
    job_id uuid primary key,
    state text collate "C" not null check (state in ('completed', 'failed', 'cancelled', 'in_doubt')),
    epoch bigint,
    attempt smallint not null,
    worker text,
    started_at timestamptz,
    ended_at timestamptz not null,
    error json,
    result json
);
create index outcome_by_state on oncely.outcome (state, job_id) where state <> 'completed';

-- The deliveries that did not bring the job to rest. The last one says when the job is due next,
-- and what has been used up by then: attempts, crashes in a row, defers.
create table oncely.execution (
    job_id uuid not null,
    epoch bigint not null,
    outcome text collate "C" not null,
    attempt smallint not null,
    worker text,
    started_at timestamptz,
    ended_at timestamptz not null,
    due_at timestamptz not null,
    attempts smallint not null,
    crashes smallint not null default 0,
    defers smallint not null default 0,
    nonce bigint,
    error json,
    primary key (job_id, epoch)
);

-- The enqueue calls that are remembered, also past the life of their job.
create table oncely.idempotency_key (
    queue text collate "C" not null,
    key text collate "C" not null,
    job_id uuid not null,
    fingerprint text collate "C" not null,
    created_at timestamptz not null,
    lent boolean not null,
    state text collate "C",
    expires_at timestamptz,
    primary key (queue, key)
);
create index idempotency_key_by_expiry on oncely.idempotency_key (expires_at)
    where expires_at is not null;
-- A call that was skipped by a unique key is remembered under the id of the holder.
create index idempotency_key_lent on oncely.idempotency_key (job_id) where lent;

-- The work in the pipeline, held while the job is active.
create table oncely.unique_key (
    kind text collate "C" not null,
    key text collate "C" not null,
    job_id uuid not null,
    primary key (kind, key)
);

-- How a job stands now. A job that has no outcome and is in no lease waits.
-- (A clock that is fixed within a statement: with a volatile one the view would be computed whole.)
create view oncely.standing as
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
    end as state
from oncely.job j
left join oncely.outcome o on o.job_id = j.id
left join lateral (
    select e.due_at, e.attempts, e.crashes, e.defers from oncely.execution e
    where e.job_id = j.id order by e.epoch desc limit 1
) x on true;
