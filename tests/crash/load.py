"""How much the crash tests do: a little in every run, and more where there is time."""

import os

TORTURE = int(os.environ.get("ONCELY_TORTURE", "1"))


def times(count: int, *, usually: int | None = None) -> int:
    """$ONCELY_TORTURE times as often under torture; in a usual run `usually`, or just as often."""
    return count * TORTURE if TORTURE > 1 or usually is None else usually
