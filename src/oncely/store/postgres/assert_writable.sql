-- Writes nothing, and fails where nothing can be written: on a standby, and where the database or
-- the role is read-only by default.
delete from oncely.migration where false
