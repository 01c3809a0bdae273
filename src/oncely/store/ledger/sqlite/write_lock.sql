-- Writes nothing, but waits for the right to write, as only a transaction that has not read can.
delete from oncely_ledger_migration where false
