select pg_advisory_unlock_shared(oncely.topic_key(t)) from unnest(cast(:topics as text[])) t
