-- A person's answer: it happened, with this result; or it did not, and the intent is gone.
insert into oncely.ledger_resolution (name, at, happened, by_whom, note)
values (:name, clock_timestamp(), cast(:happened as boolean), :by_whom, cast(:note as text));

update oncely.ledger
set state = 'done', source = 'resolved', ended_at = clock_timestamp(), result = cast(:result as text)
where name = :name and cast(:happened as boolean);

delete from oncely.ledger where name = :name and not cast(:happened as boolean)
