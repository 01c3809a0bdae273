select pg_try_advisory_lock(oncely.topic_key('tidy'))
