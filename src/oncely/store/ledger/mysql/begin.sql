-- Write down the intent; or take over one whose holder is gone, if it is the same.
insert into oncely_ledger
    (name, verb, state, fingerprint, arguments, begun_by, holder, held_until, begun_at)
values (:name, :verb, 'begun', :fingerprint, :arguments, :owner, :owner,
    utc_timestamp(6) + interval :lease_us microsecond, utc_timestamp(6))
on duplicate key update name = oncely_ledger.name;

update oncely_ledger
set holder = :owner, held_until = utc_timestamp(6) + interval :lease_us microsecond
where name = :name and state <> 'done' and held_until <= utc_timestamp(6)
    and fingerprint = :fingerprint and verb = :verb;

select begun_by = :owner, holder = :owner, held_until > utc_timestamp(6), state, verb, fingerprint,
    timestampdiff(microsecond, begun_at, utc_timestamp(6)) / 1e6, source, result
from oncely_ledger where name = :name
for update
