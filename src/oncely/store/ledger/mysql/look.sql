select begun_by = :owner, holder = :owner, held_until > utc_timestamp(6), state, verb, fingerprint,
    timestampdiff(microsecond, begun_at, utc_timestamp(6)) / 1e6, source, result
from oncely_ledger where name = :name
