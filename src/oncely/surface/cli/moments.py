"""Times as people say them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

_UNITS: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def span(seconds: float) -> str:
    """`3m`, for a table."""
    count, unit = _largest(seconds)
    return f"{count}{unit[0]}"


def when(moment: datetime, now: datetime) -> str:
    """`2026-10-03 14:03:12 UTC, 3 minutes ago`."""
    seconds = (now - moment).total_seconds()
    count, unit = _largest(abs(seconds))
    distance = f"{count} {unit}{'' if count == 1 else 's'}"
    relative = "now" if count == 0 else f"{distance} ago" if seconds > 0 else f"in {distance}"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC, {relative}"


def _largest(seconds: float) -> tuple[int, str]:
    whole = max(0, int(seconds))
    for size, unit in _UNITS:
        if whole >= size:
            return whole // size, unit
    return 0, "second"
