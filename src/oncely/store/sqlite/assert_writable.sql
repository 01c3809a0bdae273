-- Writes nothing, and fails where nothing can be written.
delete from oncely_migration where false
