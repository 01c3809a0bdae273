select pg_advisory_lock_shared(oncely.topic_key(t)) from unnest(cast(:topics as text[])) t
