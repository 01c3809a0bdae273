"""A plan is a generator: it yields statements, receives their rows, and returns a value.

It does no I/O, so that one plan serves a sync and an async connection, ours or the caller's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

Row = tuple[Any, ...]
Params = Mapping[str, Any]
T = TypeVar("T")
W = TypeVar("W")


class Statement(msgspec.Struct, frozen=True):
    """A statement by its name: each engine has a file of that name with its SQL."""

    name: str
    params: Params = {}


class Together(Statement, frozen=True):
    """Statements that go to the store in one message, and are done all or none. Each row of the
    answer holds the rows of one of them. Only for connections of our own."""

    name: str = "together"
    parts: Sequence[Statement] = ()


Plan = Generator[Statement, list[Row], T]


def document(name: str, records: Any, **params: Any) -> Statement:
    """A statement over many records, which travel as one JSON document."""
    return Statement(name, {"doc": msgspec.json.encode(records).decode(), **params})


def run(plan: Generator[W, Any, T], ask: Callable[[W], Any]) -> T:
    """Give the plan what it asks for, until it returns."""
    try:
        wanted = next(plan)
        while True:
            try:
                answer = ask(wanted)
            except BaseException as error:
                wanted = plan.throw(error)
            else:
                wanted = plan.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value


async def arun(plan: Generator[W, Any, T], ask: Callable[[W], Awaitable[Any]]) -> T:
    try:
        wanted = next(plan)
        while True:
            try:
                answer = await ask(wanted)
            except BaseException as error:
                wanted = plan.throw(error)
            else:
                wanted = plan.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value
