-- Where the jobs of a queue are pushed to. The secrets are kept as they are: they sign every request.
alter table oncely_queue add column push_url text;
alter table oncely_queue add column push_secrets text
    check ((push_url is null) = (push_secrets is null));
alter table oncely_queue add column push_mode text
    check (push_mode in ('sync', 'ack') and (push_url is null) = (push_mode is null));

-- A job whose receiver has accepted it, and has until then to say how it ended. Such a lease has
-- one job.
alter table oncely_lease add column ack_until integer;
create index oncely_lease_by_ack on oncely_lease (ack_until) where ack_until is not null;
