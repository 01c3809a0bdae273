-- The holder does anew what another call began.
update oncely.ledger set begun_by = :owner, state = 'begun'
where name = :name and holder = :owner and state <> 'done'
returning name
