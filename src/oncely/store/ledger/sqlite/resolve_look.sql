select state, held_until > (select now from oncely_ledger_clock) from oncely_ledger where name = :name
