-- It did not happen, and the call that began it knows.
delete from oncely_ledger where name = :name and begun_by = :owner and state <> 'done'
