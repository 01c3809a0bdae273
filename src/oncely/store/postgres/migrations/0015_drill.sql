-- What drills found: executions of jobs that were completed before, which change nothing of them.
-- `found` lists what was recognised and what would have been repeated.
create table oncely.drill (
    job_id uuid not null,
    execution_id text collate "C" not null,
    at timestamptz not null,
    epoch bigint not null,
    worker text not null,
    outcome text collate "C" not null
        check (outcome in ('recognised', 'repeated', 'diverged', 'failed', 'unseen')),
    found json not null,
    primary key (job_id, execution_id)
);
create index drill_to_look_at on oncely.drill (at)
    where outcome in ('repeated', 'diverged', 'failed');

-- The switch for all workers. There is a row once somebody has used it.
create table oncely.drill_switch (
    id smallint primary key check (id = 1),
    stopped boolean not null,
    at timestamptz not null,
    by_whom text not null
);
