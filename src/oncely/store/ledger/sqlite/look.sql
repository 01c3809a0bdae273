select begun_by = :owner, holder = :owner, held_until > c.now, state, verb, fingerprint,
    (c.now - begun_at) / 1e6, source, result
from oncely_ledger_clock c join oncely_ledger on name = :name
