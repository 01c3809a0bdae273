-- The holder lets the entry go without knowing its end.
update oncely_ledger
set held_until = (select now from oncely_ledger_clock),
    state = case when :doubt then 'in_doubt' else state end
where name = :name and holder = :owner and state <> 'done'
