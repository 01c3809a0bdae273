vacuum (skip_locked, truncate off) oncely.lease
