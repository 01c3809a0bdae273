"""What an engine does for the rest of the house: run plans on connections of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from oncely.model.errors import StoreUnavailable
from oncely.store.listen import Ear, Tell
from oncely.store.plan import Plan, Statement
from oncely.store.sql import Library
from oncely.store.store_id import StoreId

T = TypeVar("T")
Access = Literal["read", "write", "transaction"]
"""`read` and `write` are statements that may stand alone, `transaction` is all or nothing."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that `oncely doctor` looked at."""

    name: str
    status: Literal["ok", "warning", "error"]
    detail: str


class StoreClosed(StoreUnavailable):
    """`close()` was called: no later try will be answered."""

    def __init__(self) -> None:
        super().__init__("this Oncely or Ledger was closed: make a new one")


class CommitLost(StoreUnavailable):
    """The answer to a commit did not arrive: what was written is there, or it is not."""


class Transactions(Protocol):
    """A connection in a transaction of its own, for a handler. It commits at the end of the block;
    `CommitLost` says that nobody knows whether it did."""

    def sync(self) -> AbstractContextManager[Any]: ...

    def on_loop(self) -> AbstractAsyncContextManager[Any]: ...

    def end_with(self, tx: Any, library: Library, last: Statement) -> bool:
        """Carry out `last` and commit, in one message. False if that cannot be, or if `last` was
        refused: then the transaction is as it was before."""

    async def aend_with(self, tx: Any, library: Library, last: Statement) -> bool: ...


class Runs(Protocol):
    def run(self, make: Callable[[bool], Plan[T]], access: Access) -> T:
        """Run the plan. If the connection is lost it is made and run once more, with True:
        then what the first run wrote may be there or not."""


class Engine(Runs, Protocol):
    @property
    def is_parallel(self) -> bool:
        """Whether two writes under way at once are done sooner than one after the other."""

    @property
    def library(self) -> Library: ...

    @property
    def transactions(self) -> Transactions: ...

    def listen(
        self, topics: Iterable[str], tell: Tell, *, every_seconds: float | None = None
    ) -> Ear:
        """`tell` will be called, while the ear rests, when there may be news of these topics."""

    def migrate(self) -> list[str]:
        """Bring the schema up to date, and name the migrations that were applied."""

    def vet(self) -> Plan[None]:
        """Asked through the caller's connection: does its transaction reach this very store?"""

    def store_id(self) -> StoreId | None:
        """With what the statement that takes in jobs compares the store that a caller's transaction
        reaches; None where `vet` has done that."""

    def pause(self) -> None:
        """Before a fork: let what is under way come to its end, and begin nothing."""

    def resume(self) -> None:
        """After a fork, in the parent: go on."""

    def renew(self) -> None:
        """In the child of a fork: forget the parent's connections without touching them."""

    def tidy(self) -> float | None:
        """Clear away what is left where jobs were claimed, if it is on us to do that; in how many
        seconds to come again, or None if there is never anything to do."""

    def examine(self) -> list[Finding]: ...

    def close(self) -> None: ...
