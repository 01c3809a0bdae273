-- How long this session waits for a lock, before and now.
select @@session.innodb_lock_wait_timeout;

set session innodb_lock_wait_timeout = :wait_seconds
