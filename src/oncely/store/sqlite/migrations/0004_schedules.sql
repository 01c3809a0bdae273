-- What a schedule enqueues and when, as the workers that have it in their code declared it.
-- Every tick before due_at is dealt with: fired, or skipped. That outlives the keys of its jobs.
create table oncely_schedule (
    name text primary key,
    cron text not null,
    timezone text not null,
    catch_up text not null check (catch_up in ('latest', 'all', 'skip')),
    job text not null,
    definition text not null,
    due_at integer not null,
    last_at integer,
    seen_at integer not null,
    paused_at integer
) without rowid;
