-- Those whose end nobody knows and nobody is finding out, the longest first.
select name, verb, extract(epoch from clock_timestamp() - begun_at)::float8, arguments
from oncely.ledger
where state in ('begun', 'in_doubt') and held_until <= (select clock_timestamp())
    and (state = 'in_doubt' or verb = 'fence')
order by held_until limit :limit
