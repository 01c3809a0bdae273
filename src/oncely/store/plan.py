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


class Wired(Statement, frozen=True):
    """One whose parameters are as they go to PostgreSQL: text, or bytes for what is binary. Its
    answer is how many rows it has written. Only for connections of our own."""

    params: Mapping[str, str | bytes | None] = {}


class Form(msgspec.Struct, frozen=True):
    """Another way to do what a statement does. `read` makes the rows of that statement's answer."""

    statement: Statement
    read: Callable[[list[Row]], list[Row]]


class Quick(Statement, frozen=True):
    """One that an engine may have a quicker form of, for what is usual, if it will do. Only for
    connections of our own."""

    quicker: Callable[[], Form | None] = lambda: None
    whole: Callable[[], Form | None] = lambda: None
    """A form that does all that the plan wants, and then the plan asks for nothing else; or it
    fails and has done nothing. So it needs no transaction around it."""


class Together(Quick, frozen=True):
    """Statements that go to the store in one message, and are done all or none. Each row of the
    answer holds the rows of one of them. Only for connections of our own."""

    name: str = "together"
    parts: Sequence[Statement] = ()


Plan = Generator[Statement, list[Row], T]


def document(name: str, records: Any, **params: Any) -> Statement:
    """A statement over many records, which travel as one JSON document."""
    return Statement(name, {"doc": msgspec.json.encode(records).decode(), **params})


def run(plan: Generator[W, Any, T], ask: Callable[[W], Any], first: W | None = None) -> T:
    """Give the plan what it asks for, until it returns. `first`: what it has asked for already."""
    try:
        wanted = next(plan) if first is None else first
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
