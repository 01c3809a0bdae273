select set_config('lock_timeout', cast(:before as text), true)
