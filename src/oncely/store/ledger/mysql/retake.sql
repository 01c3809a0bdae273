-- The holder does anew what another call began.
update oncely_ledger set begun_by = :owner, state = 'begun'
where name = :name and holder = :owner and state <> 'done';

select name from oncely_ledger
where name = :name and holder = :owner and begun_by = :owner and state = 'begun'
for update
