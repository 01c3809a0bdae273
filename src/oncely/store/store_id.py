"""The identity of a store: does a transaction of the caller's reach this very store?"""

from __future__ import annotations

import msgspec

from oncely.model.errors import InvalidInput
from oncely.store.plan import Plan, Statement


class StoreId(msgspec.Struct, frozen=True):
    id: str
    place: str
    """Where the connection that read it found the store, for a person."""


class OtherStore(InvalidInput):
    """A transaction of the caller's is on another store. Nothing was stored."""

    def __init__(self, own: StoreId, other: StoreId) -> None:
        self.own = own
        super().__init__(
            f"tx is a transaction on another store ({other.place}, store id {other.id}), and this "
            f"app's store is {own.place}, store id {own.id}: open the transaction there. If tx= "
            "must be on another database, enqueue without tx= and use a Ledger in that database"
        )


def read_store_id() -> Plan[StoreId]:
    [(id, place)] = yield Statement("store_id")
    return StoreId(id, place)


def refuse_other_store(own: StoreId) -> Plan[None]:
    """Asked through the caller's connection."""
    other = yield from read_store_id()
    if other.id != own.id:
        raise OtherStore(own, other)
