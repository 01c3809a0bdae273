-- It happened. Evidence counts, whoever brings it and however late. What is there already stays.
insert into oncely_ledger
    (name, verb, state, fingerprint, arguments, begun_by, holder, held_until, begun_at, ended_at,
    source, result)
values (:name, :verb, 'done', :fingerprint, :arguments, :owner, :owner, utc_timestamp(6),
    utc_timestamp(6), utc_timestamp(6), :source, :result)
on duplicate key update name = oncely_ledger.name;

update oncely_ledger
set state = 'done', ended_at = utc_timestamp(6), source = :source, result = :result
where name = :name and state <> 'done' and fingerprint = :fingerprint and verb = :verb;

select begun_by = :owner, holder = :owner, held_until > utc_timestamp(6), state, verb, fingerprint,
    timestampdiff(microsecond, begun_at, utc_timestamp(6)) / 1e6, source, result
from oncely_ledger where name = :name
for update
