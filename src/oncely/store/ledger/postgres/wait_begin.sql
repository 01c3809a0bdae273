-- How long this transaction waits for a lock, before and now.
select current_setting('lock_timeout'), set_config('lock_timeout', cast(:wait_ms as text), true)
