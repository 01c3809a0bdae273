"""What an engine does for the rest of the house: run plans on connections of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeVar

import msgspec

from oncely.store.plan import Plan
from oncely.store.sql import Library

T = TypeVar("T")
CLOSED: Final = "this Oncely was closed: make a new one"
Access = Literal["read", "write", "transaction"]
"""`read` and `write` are statements that may stand alone, `transaction` is all or nothing."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that `oncely doctor` looked at."""

    name: str
    status: Literal["ok", "warning", "error"]
    detail: str


class Engine(Protocol):
    library: Library

    def run(self, make: Callable[[bool], Plan[T]], access: Access) -> T:
        """Run the plan. If the connection is lost it is made and run once more, with True:
        then what the first run wrote may be there or not."""

    def migrate(self) -> list[str]:
        """Bring the schema up to date, and name the migrations that were applied."""

    def vet(self) -> Plan[None]:
        """Asked through the caller's connection: does its transaction reach this very store?"""

    def pause(self) -> None:
        """Before a fork: let what is under way come to its end, and begin nothing."""

    def resume(self) -> None:
        """After a fork, in the parent: go on."""

    def renew(self) -> None:
        """In the child of a fork: forget the parent's connections without touching them."""

    def examine(self) -> list[Finding]: ...

    def close(self) -> None: ...
