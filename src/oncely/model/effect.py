"""Effects: what a handler does to the world, and what follows from what the ledger says of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from oncely.model import payload
from oncely.model.errors import InvalidInput
from oncely.model.keys import check_key, shown

Verb = Literal["step", "fence", "transaction"]
"""The last only in a `Ledger`: the effects of a job that share its transaction need no entry."""
Source = Literal["returned", "unkept", "verified", "assumed", "resolved"]
OnDoubt = Literal["hold", "retry", "assume_done"]
ARGUMENTS_LIMIT: Final = 4_000
NOTE_LIMIT: Final = 4_000
RESULT_LIMIT_BYTES: Final = 1024 * 1024
_ON_DOUBT: Final = get_args(OnDoubt)
_EXACT_LIMIT: Final = 2**53
_PLACEHOLDER: Final = getattr(functools, "Placeholder", object())
"""An argument that a partial leaves open, from Python 3.14 on."""


class Entry(msgspec.Struct, frozen=True):
    """What the ledger knew of an effect when this execution came to it."""

    state: Literal["begun", "in_doubt", "done"]
    verb: Verb
    fingerprint: str
    epoch: int
    age_seconds: float
    """Since the effect was first begun."""
    source: Source | None
    result: str | None
    old_name: str | None = None
    """The name that it is on record under, if that is one that the effect had before."""


Move = Literal["recorded", "again", "ask", "assume", "hold"]


def judge(
    entry: Entry, *, key_ttl: float | None, can_ask: bool, on_doubt: OnDoubt, verb: Verb
) -> Move:
    """What to do about an effect that was begun before.

    A step may be repeated while the other side remembers its key. Of a fence nobody knows whether
    it happened: it is asked for, or done as was declared.
    """
    if entry.state == "done":
        return "recorded"
    if verb == "step":
        return "again" if key_ttl is None or entry.age_seconds < key_ttl else "hold"
    if can_ask:
        return "ask"
    match on_doubt:
        case "retry":
            return "again"
        case "assume_done":
            return "assume"
        case _:
            return "hold"


def check_name(name: Any) -> str:
    return check_key(name, "the name of the effect")


def check_note(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > NOTE_LIMIT or "\0" in value:
        raise InvalidInput(
            f"the note is {shown(value)}; expected text of at most {NOTE_LIMIT:,} characters, "
            "without NUL"
        )
    return value.encode(errors="backslashreplace").decode()


def check_on_doubt(value: Any) -> OnDoubt:
    if value not in _ON_DOUBT:
        raise InvalidInput(
            f"in_doubt is {shown(value)}; expected {', '.join(map(repr, _ON_DOUBT))}"
        )
    return value  # type: ignore[no-any-return]


def check_key_ttl(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InvalidInput(
            f"key_ttl is {shown(value)}; expected the seconds for which the other side remembers "
            "the key, or None if it always does"
        )
    return float(value)


def unpack_partial(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """All arguments of a call, also those that a `functools.partial` binds."""
    while isinstance(function, functools.partial):
        left = iter(args)
        bound = [next(left, each) if each is _PLACEHOLDER else each for each in function.args]
        args = (*bound, *left)
        kwargs = {**function.keywords, **kwargs}
        function = function.func
    return args, kwargs


def described(args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """The fingerprint of the arguments, and their text for the person who may have to decide.

    The fingerprint is equal for equal arguments; of one that is no JSON value only the type counts.
    """
    plain: Any = [_plain(argument) for argument in args]
    if kwargs:
        plain = {"args": plain, "kwargs": {name: _plain(kwargs[name]) for name in sorted(kwargs)}}
    text = msgspec.json.encode(plain).decode()
    told = text if len(text) <= ARGUMENTS_LIMIT else f"{text[:ARGUMENTS_LIMIT]}…"
    return payload.fingerprint("effect", plain), told


def _plain(argument: Any) -> Any:
    kind = type(argument)
    # What comes back from JSON as it went in need not be sent there.
    if kind is int and -_EXACT_LIMIT < argument < _EXACT_LIMIT:
        return argument
    if kind is str and len(argument) <= ARGUMENTS_LIMIT and argument.isascii():
        return argument
    try:
        return payload.decode(payload.encode(argument, max_bytes=RESULT_LIMIT_BYTES))
    except InvalidInput:
        return f"<{type(argument).__module__}.{type(argument).__qualname__}>"


def kept(value: Any) -> tuple[Source, str | None]:
    """A result in the form in which it is kept; one that cannot be is not lost sight of."""
    try:
        return "returned", payload.encode(value, max_bytes=RESULT_LIMIT_BYTES)
    except InvalidInput:
        return "unkept", None
