"""How much the crash tests do: a little in every run, and more where there is time."""

import os

TORTURE = int(os.environ.get("ONCELY_TORTURE", "1"))


def times(count: int) -> int:
    """So often in a usual run, and $ONCELY_TORTURE times as often under torture."""
    return count * TORTURE
