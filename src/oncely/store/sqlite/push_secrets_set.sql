-- Only if nobody has set others meanwhile.
update oncely_queue set push_secrets = :secrets where name = :name and push_secrets = :before
