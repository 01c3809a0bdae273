select owner, fingerprint, state, held_until <= (select now from oncely_clock), status, headers, body
from oncely_request where scope = :scope and key = :key
