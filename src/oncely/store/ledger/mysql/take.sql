-- In the caller's transaction: whoever comes second waits here until the first has ended its own.
insert into oncely_ledger
    (name, verb, state, fingerprint, begun_by, holder, held_until, begun_at, ended_at, source)
values (:name, 'transaction', 'done', :fingerprint, :owner, :owner, utc_timestamp(6),
    utc_timestamp(6), utc_timestamp(6), 'returned')
on duplicate key update name = oncely_ledger.name;

select begun_by = :owner, verb, fingerprint, state, source, result from oncely_ledger where name = :name
for update
