-- Those whose end nobody knows and nobody is finding out, the longest first.
select name, verb, ((select now from oncely_ledger_clock) - begun_at) / 1e6, arguments
from oncely_ledger
where state <> 'done' and held_until <= (select now from oncely_ledger_clock)
    and (state = 'in_doubt' or verb = 'fence')
order by held_until limit :limit
