-- Set once a later execution of the job did not ask for the effect, although it began others: when,
-- which execution, and what it began. Most likely the effect was renamed in the handler.
alter table oncely.effect
    add column renamed_at timestamptz,
    add column renamed_epoch bigint,
    add column renamed_to json;
