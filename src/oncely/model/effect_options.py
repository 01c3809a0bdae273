"""`Step` and `Fence`: an effect with its options, declared once and used in place of its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from oncely.model.effect import OnDoubt, check_key_ttl, check_name, check_on_doubt
from oncely.model.errors import InvalidInput
from oncely.model.keys import shown

ErrorTypes = type[BaseException] | tuple[type[BaseException], ...]
NotDoneRule = ErrorTypes | Callable[[BaseException], Any]
"""Which exceptions prove that nothing happened."""


class _Declared(msgspec.Struct, frozen=True):
    name: str


class Step(_Declared, frozen=True, kw_only=True):
    """An effect that may be repeated. Given to `ctx.step` and `ctx.key` in place of a name.

    `was` is the name that the effect had in earlier versions of the handler, or several, the
    oldest first: a job that began it under an old name goes on under that name.
    """

    key_ttl: float | None = None
    was: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        check_key_ttl(self.key_ttl)
        force_setattr(self, "was", check_was(self.name, self.was))


class Fence(_Declared, frozen=True, kw_only=True):
    """An effect that must not be repeated. Given to `ctx.fence` in place of a name.

    `verify`, `in_doubt` and `not_done` are the options of `ctx.fence`; `was` is that of `Step`.
    """

    verify: Callable[..., Any] | None = None
    in_doubt: OnDoubt | None = None
    not_done: NotDoneRule | None = None
    was: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        check_verify(self.verify)
        if self.in_doubt is not None:
            check_on_doubt(self.in_doubt)
        if self.not_done is not None:
            check_not_done(self.not_done)
        force_setattr(self, "was", check_was(self.name, self.was))


def key_name(declared: Any) -> str:
    """The name that keys for the other side are derived from: the oldest one, so that a repeat
    after a rename comes with the key of the first time."""
    if isinstance(declared, Step | Fence):
        return next(iter(declared.was), declared.name)
    return check_name(declared)


def check_was(name: str, was: Any) -> tuple[str, ...]:
    names = [was] if isinstance(was, str) else was
    if not isinstance(names, list | tuple):
        raise InvalidInput(f"was is {shown(was)}; expected the old name of the effect, or a list")
    for old in names:
        check_name(old)
    if name in names or len(set(names)) < len(names):
        raise InvalidInput(
            f"was is {shown(was)}; expected names that effect {name!r} had before, each once"
        )
    return tuple(names)


def check_verify(value: Any) -> None:
    if value is not None and not callable(value):
        raise InvalidInput(f"verify is {shown(value)}; expected a function of the arguments")


def check_not_done(value: Any) -> None:
    if not error_types(value) and value != () and (isinstance(value, type) or not callable(value)):
        raise InvalidInput(
            f"not_done is {shown(value)}; expected an exception type, a tuple of them, or a "
            "function of the exception"
        )


def error_types(value: Any) -> tuple[type[BaseException], ...]:
    """The exception types that the value names; none if it is anything else."""
    types = value if isinstance(value, tuple) else (value,)
    usable = all(isinstance(each, type) and issubclass(each, BaseException) for each in types)
    return types if usable else ()
