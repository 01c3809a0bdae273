"""Waiting for the thing itself, however busy the machine is."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 120.0
"""A bound against what hangs. It asserts no speed: a machine with one busy core takes a minute for
what an idle one does in seconds."""


def wait_until(reached: Callable[[], object], what: str = "it did not happen") -> None:
    """Look until `reached` says yes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:.0f} s: {what}"
        time.sleep(0.01)
