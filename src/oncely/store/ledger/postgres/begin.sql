-- Write down the intent; or take over one whose holder is gone, if it is the same.
insert into oncely.ledger
    (name, verb, state, fingerprint, arguments, begun_by, holder, held_until, begun_at)
select :name, :verb, 'begun', :fingerprint, cast(:arguments as text), :owner, :owner,
    c.now + cast(:lease_us as bigint) * interval '1 microsecond', c.now
from (select clock_timestamp() as now) c
on conflict do nothing;

update oncely.ledger
set holder = :owner,
    held_until = clock_timestamp() + cast(:lease_us as bigint) * interval '1 microsecond'
where name = :name and state <> 'done' and held_until <= clock_timestamp()
    and fingerprint = :fingerprint and verb = :verb;

select begun_by = :owner, holder = :owner, held_until > clock_timestamp(), state, verb, fingerprint,
    extract(epoch from clock_timestamp() - begun_at)::float8, source, result
from oncely.ledger where name = :name
