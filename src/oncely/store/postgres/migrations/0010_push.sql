-- Where the jobs of a queue are pushed to. The secrets are kept as they are: they sign every request.
alter table oncely.queue
    add column push_url text,
    add column push_secrets json,
    add column push_mode text collate "C" check (push_mode in ('sync', 'ack')),
    add check ((push_url is null) = (push_mode is null) and (push_url is null) = (push_secrets is null));

-- A job whose receiver has accepted it, and has until then to say how it ended. Such a lease has
-- one job.
alter table oncely.lease add column ack_until timestamptz;
create index lease_by_ack on oncely.lease (ack_until) where ack_until is not null;
