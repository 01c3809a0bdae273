-- It happened. Evidence counts, whoever brings it and however late. What is there already stays.
insert into oncely_ledger
    (name, verb, state, fingerprint, arguments, begun_by, holder, held_until, begun_at, ended_at,
    source, result)
select :name, :verb, 'done', :fingerprint, :arguments, :owner, :owner, c.now, c.now, c.now, :source,
    :result
from oncely_ledger_clock c where true
on conflict (name) do update
set state = 'done', ended_at = excluded.ended_at, source = excluded.source, result = excluded.result
where state <> 'done' and fingerprint = excluded.fingerprint and verb = excluded.verb;

select begun_by = :owner, holder = :owner, held_until > c.now, state, verb, fingerprint,
    (c.now - begun_at) / 1e6, source, result
from oncely_ledger_clock c join oncely_ledger on name = :name
