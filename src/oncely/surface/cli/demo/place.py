"""Where a run of the demo takes place."""

from __future__ import annotations

from typing import Final

import msgspec

KIND: Final = "demo.charge"


class Place(msgspec.Struct, frozen=True):
    """A store, and a queue in it that is this run's own."""

    url: str
    schema: str
    queue: str


def asks(order: int) -> bool:
    """Whether the handler asks after the receipt of this order when it is in doubt. Of the others
    a person must say: of every second one, so that a run shows both."""
    return order % 2 == 0
