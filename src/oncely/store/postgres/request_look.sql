select owner, fingerprint, state, held_until <= clock_timestamp(), status, headers, body
from oncely.request where scope = :scope and key = :key
