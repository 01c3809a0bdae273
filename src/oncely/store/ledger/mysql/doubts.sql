-- Those whose end nobody knows and nobody is finding out, the longest first.
select name, verb, timestampdiff(microsecond, begun_at, utc_timestamp(6)) / 1e6, arguments
from oncely_ledger
where state in ('begun', 'in_doubt') and held_until <= utc_timestamp(6)
    and (state = 'in_doubt' or verb = 'fence')
order by held_until limit :limit
