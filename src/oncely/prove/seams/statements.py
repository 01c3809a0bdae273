"""Statements to a database server, told before they are sent, and connections that are refused."""

from __future__ import annotations

from typing import Any, Literal, NoReturn

from oncely.prove.seams.clocks import clock_in
from oncely.prove.seams.inserts import given_columns
from oncely.prove.seams.names import begins_one, ends_one, first_words, reads, written_tables
from oncely.prove.watch import Action, Watch

_writing: set[int] = set()
"""The connections in whose transaction something was written: others may wait for it."""


def follow_transactions(watch: Watch) -> None:
    watch.open_transactions.append(lambda: bool(_writing))


def tell_statement(
    watch: Watch,
    channel: Literal["postgres", "mysql"],
    connection: Any,
    statement: str,
    *,
    in_transaction: bool,
) -> Action | None:
    """Before it is sent. What comes back is a fault for the caller to make."""
    if clock := clock_in(statement):
        watch.note("clock", "SQL", [clock])
    for table in written_tables(statement):
        watch.note("written", table)
    for given in given_columns(statement):
        watch.note("given", given)
    begins, ends = begins_one(statement), ends_one(statement)
    action = watch.pass_by(
        channel,
        first_words(statement),
        repeatable=reads(statement),
        inside=begins or (in_transaction and not ends),
    )
    if ends or action == "fail":
        forget_writes(connection)
    elif in_transaction and not reads(statement):
        _writing.add(id(connection))
    return action


def forget_writes(connection: Any) -> None:
    """Its transaction is over."""
    _writing.discard(id(connection))


def text_of(query: Any, connection: Any) -> str:
    if isinstance(query, bytes | bytearray):
        return query.decode(errors="replace")
    as_string = getattr(query, "as_string", None)
    return str(as_string(connection)) if as_string else str(query)


def refuse_database(watch: Watch, server: str, name: object = "") -> NoReturn:
    told = f" ({name})" if name else ""
    watch.refuse(
        f"the handler connects to a {server} database that is not under proof{told}: give a Table "
        "of it in world=, so that a copy of it is made"
    )
