-- Only for a schema of the caller's own making.
drop schema if exists oncely cascade
