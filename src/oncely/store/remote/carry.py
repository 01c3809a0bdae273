"""The plans that a server carries out for us, each with the request that stands for it.

A plan that has not begun knows its name and its arguments, and that is all that travels. So
whoever asks is the same here and at the database, and this is all that a server needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any, Final, TypeVar

import msgspec

from oncely.model.errors import NotOverHttp
from oncely.store.plan import Plan
from oncely.store.remote.mirror import mirrored
from oncely.store.remote.server import Server

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Carrier(msgspec.Struct, frozen=True):
    plan: Callable[..., Plan[Any]]
    function: Callable[..., Any]
    wanted: tuple[str, ...]
    """Those of the plan's arguments that it takes."""


CARRIED: Final[dict[CodeType, Carrier]] = {}


def carries(plan: Callable[..., Plan[Any]]) -> Callable[[F], F]:
    """The function stands for this plan. It takes the server and, by their names, arguments of the
    plan."""

    def register(function: F) -> F:
        _, *wanted = inspect.signature(function).parameters
        CARRIED[plan.__code__] = Carrier(plan, function, tuple(wanted))
        return function

    return register


def carry(plan: Plan[T], server: Server) -> T:
    """What the plan would return. It is not run here."""
    given = inspect.getgeneratorlocals(plan)
    code: CodeType = plan.gi_code  # type: ignore[attr-defined]
    plan.close()
    if code not in CARRIED:
        raise NotOverHttp("this")
    carrier = CARRIED[code]
    value: T = carrier.function(server, **{name: given[name] for name in carrier.wanted})
    return value


def model(kind: type[T], body: bytes) -> T:
    """A struct of the model, from the JSON that it travelled as."""
    return restored(kind, msgspec.json.decode(body, type=mirrored(kind)))  # type: ignore[arg-type]


def restored(kind: type[T], told: Any) -> T:
    return msgspec.convert(told, kind, from_attributes=True)
