-- What a schedule enqueues and when, as the workers that have it in their code declared it.
-- Every tick before due_at is dealt with: fired, or skipped. That outlives the keys of its jobs.
create table oncely.schedule (
    name text collate "C" primary key,
    cron text not null,
    timezone text not null,
    catch_up text collate "C" not null check (catch_up in ('latest', 'all', 'skip')),
    job text not null,
    definition text collate "C" not null,
    due_at timestamptz not null,
    last_at timestamptz,
    seen_at timestamptz not null,
    paused_at timestamptz
) with (fillfactor = 50);
