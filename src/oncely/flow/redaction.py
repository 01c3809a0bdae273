"""What our logs and the command line hide: the usual names, and those in `$ONCELY_REDACT`."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Final

from oncely.model.redact import Redact

REDACT_VARIABLE: Final = "ONCELY_REDACT"


def redaction() -> Redact:
    return _redaction(os.environ.get(REDACT_VARIABLE, ""))


@lru_cache(maxsize=4)
def _redaction(names: str) -> Redact:
    return Redact(names.split())
