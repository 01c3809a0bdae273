-- A person's answer: it happened, with this result; or it did not, and the intent is gone.
insert into oncely_ledger_resolution (name, at, happened, by_whom, note)
values (:name, utc_timestamp(6), :happened, :by_whom, :note);

update oncely_ledger
set state = 'done', source = 'resolved', ended_at = utc_timestamp(6), result = :result
where name = :name and :happened;

delete from oncely_ledger where name = :name and not :happened
