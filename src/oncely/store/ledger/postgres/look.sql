select begun_by = :owner, holder = :owner, held_until > clock_timestamp(), state, verb, fingerprint,
    extract(epoch from clock_timestamp() - begun_at)::float8, source, result
from oncely.ledger where name = :name
