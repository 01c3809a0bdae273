update oncely_ledger set held_until = (select now from oncely_ledger_clock) + :lease_us
where name = :name and holder = :owner and state <> 'done'
