-- Set once a later execution of the job did not ask for the effect, although it began others: when,
-- which execution, and what it began. Most likely the effect was renamed in the handler.
alter table oncely_effect add column renamed_at integer;
alter table oncely_effect add column renamed_epoch integer;
alter table oncely_effect add column renamed_to text;
