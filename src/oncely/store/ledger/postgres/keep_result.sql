update oncely.ledger set result = :result where name = :name and begun_by = :owner
