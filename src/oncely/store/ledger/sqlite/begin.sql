-- Write down the intent; or take over one whose holder is gone, if it is the same.
insert into oncely_ledger
    (name, verb, state, fingerprint, arguments, begun_by, holder, held_until, begun_at)
select :name, :verb, 'begun', :fingerprint, :arguments, :owner, :owner, c.now + :lease_us, c.now
from oncely_ledger_clock c where true
on conflict do nothing;

update oncely_ledger
set holder = :owner, held_until = (select now from oncely_ledger_clock) + :lease_us
where name = :name and state <> 'done' and held_until <= (select now from oncely_ledger_clock)
    and fingerprint = :fingerprint and verb = :verb;

select begun_by = :owner, holder = :owner, held_until > c.now, state, verb, fingerprint,
    (c.now - begun_at) / 1e6, source, result
from oncely_ledger_clock c join oncely_ledger on name = :name
