-- It happened. Evidence counts, whoever brings it and however late. What is there already stays.
insert into oncely.ledger as e
    (name, verb, state, fingerprint, arguments, begun_by, holder, held_until, begun_at, ended_at,
    source, result)
select :name, :verb, 'done', :fingerprint, cast(:arguments as text), :owner, :owner, c.now, c.now,
    c.now, :source, cast(:result as text)
from (select clock_timestamp() as now) c
on conflict (name) do update
set state = 'done', ended_at = excluded.ended_at, source = excluded.source, result = excluded.result
where e.state <> 'done' and e.fingerprint = excluded.fingerprint and e.verb = excluded.verb;

select begun_by = :owner, holder = :owner, held_until > clock_timestamp(), state, verb, fingerprint,
    extract(epoch from clock_timestamp() - begun_at)::float8, source, result
from oncely.ledger where name = :name
