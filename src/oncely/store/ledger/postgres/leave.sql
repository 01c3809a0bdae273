-- The holder lets the entry go without knowing its end.
update oncely.ledger
set held_until = clock_timestamp(),
    state = case when cast(:doubt as boolean) then 'in_doubt' else state end
where name = :name and holder = :owner and state <> 'done'
