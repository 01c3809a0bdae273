"""A plan is a generator: it yields statements, receives their rows, and returns a value.

It does no I/O, so that one plan serves a sync and an async connection, ours or the caller's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, TypeVar

import msgspec

Row = tuple[Any, ...]
Params = Mapping[str, Any]
T = TypeVar("T")


class Statement(msgspec.Struct, frozen=True):
    """A statement by its name: each engine has a file of that name with its SQL."""

    name: str
    params: Params = {}


Plan = Generator[Statement, list[Row], T]


def document(name: str, records: Any, **params: Any) -> Statement:
    """A statement over many records, which travel as one JSON document."""
    return Statement(name, {"doc": msgspec.json.encode(records).decode(), **params})


def run(plan: Plan[T], ask: Callable[[Statement], list[Row]]) -> T:
    try:
        statement = next(plan)
        while True:
            try:
                rows = ask(statement)
            except BaseException as error:
                statement = plan.throw(error)
            else:
                statement = plan.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun(plan: Plan[T], ask: Callable[[Statement], Awaitable[list[Row]]]) -> T:
    try:
        statement = next(plan)
        while True:
            try:
                rows = await ask(statement)
            except BaseException as error:
                statement = plan.throw(error)
            else:
                statement = plan.send(rows)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
