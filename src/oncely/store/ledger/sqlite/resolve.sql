-- A person's answer: it happened, with this result; or it did not, and the intent is gone.
insert into oncely_ledger_resolution (name, at, happened, by_whom, note)
select :name, c.now, :happened, :by_whom, :note from oncely_ledger_clock c;

update oncely_ledger
set state = 'done', source = 'resolved', ended_at = (select now from oncely_ledger_clock),
    result = :result
where name = :name and :happened;

delete from oncely_ledger where name = :name and not :happened
