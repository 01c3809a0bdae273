-- The trace that a job belongs to, as the header `traceparent` has it, if it was enqueued within one.
alter table oncely.job add column traceparent text;
