-- In the caller's transaction: whoever comes second waits here until the first has ended its own.
insert into oncely_ledger
    (name, verb, state, fingerprint, begun_by, holder, held_until, begun_at, ended_at, source)
select :name, 'transaction', 'done', :fingerprint, :owner, :owner, c.now, c.now, c.now, 'returned'
from oncely_ledger_clock c where true
on conflict do nothing;

select begun_by = :owner, verb, fingerprint, state, source, result from oncely_ledger where name = :name
