-- What drills found: executions of jobs that were completed before, which change nothing of them.
-- `found` lists what was recognised and what would have been repeated.
create table oncely_drill (
    job_id text not null,
    execution_id text not null,
    at integer not null,
    epoch integer not null,
    worker text not null,
    outcome text not null
        check (outcome in ('recognised', 'repeated', 'diverged', 'failed', 'unseen')),
    found text not null,
    primary key (job_id, execution_id)
) without rowid;
create index oncely_drill_to_look_at on oncely_drill (at)
    where outcome in ('repeated', 'diverged', 'failed');

-- The switch for all workers. There is a row once somebody has used it.
create table oncely_drill_switch (
    id integer primary key check (id = 1),
    stopped integer not null,
    at integer not null,
    by_whom text not null
);
