select state, held_until > clock_timestamp() from oncely.ledger where name = :name for update
