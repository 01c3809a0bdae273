-- The pragma itself, not its table-valued form, which would begin to read.
pragma database_list
