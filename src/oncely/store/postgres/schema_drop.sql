-- Only for a schema of the caller's own making.
drop schema oncely cascade
