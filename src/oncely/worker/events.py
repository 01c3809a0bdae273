"""Log records: one line of words, and fields for machines."""

from __future__ import annotations

import logging
from typing import Any, Final

_LOGGER: Final = logging.getLogger("oncely.worker")


def log(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    if _LOGGER.isEnabledFor(level):
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        _LOGGER.log(level, "%s %s", event, told, extra={"oncely": {"event": event, **fields}})
