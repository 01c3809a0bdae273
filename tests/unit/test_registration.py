"""Mistakes in the declaration of a handler are errors where it is declared, with the fix."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import pytest

from oncely import Context, InvalidInput, Oncely

if TYPE_CHECKING:
    from oncely import Context as Unseen
C = TypeVar("C", bound=Context)


@dataclass
class Order:
    id: int


class Narrow(Protocol):
    job_id: str


class Special(Context): ...


def app() -> Oncely:
    return Oncely("sqlite:///:memory:")


def test_a_bare_decorator_is_refused_and_the_fix_is_named() -> None:
    def charge(ctx: Context) -> None: ...

    with pytest.raises(InvalidInput, match=r'@app\.job\("charge"\)'):
        app().job(charge)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [None, 7, b"k", "", "a b", ["k"]])
def test_a_kind_that_is_no_name_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="kind is"):
        app().job(kind)(lambda ctx: None)


def payload_only(order: Order) -> None: ...
async def plain_payload(order: dict[str, Any]) -> None: ...
def maybe_payload(order: Order | None) -> None: ...
def noted_payload(order: Annotated[Order, "note"]) -> None: ...
def swapped(order: Order, ctx: Context) -> None: ...
def half_swapped(order, ctx: Context) -> None: ...  # type: ignore[no-untyped-def]
def two_payloads(order: Order, other: Order) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        payload_only,
        plain_payload,
        maybe_payload,
        noted_payload,
        swapped,
        half_swapped,
        two_payloads,
    ],
)
def test_a_first_parameter_that_is_no_context_is_refused(handler: Callable[..., Any]) -> None:
    told = rf"{handler.__name__}.*takes the context first.*\(ctx: Context, order"
    with pytest.raises(InvalidInput, match=told):
        app().job("k")(handler)


def nothing() -> None: ...
def three(ctx: Context, order: Order, more: int) -> None: ...
def only_by_name(ctx: Context, *, order: Order) -> None: ...
def yields(ctx: Context) -> Iterator[int]:
    yield 1


async def ayields(ctx: Context) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (nothing, r"takes 0 arguments; expected \(ctx\) or \(ctx, payload\)"),
        (three, r"takes 3 arguments; expected \(ctx\) or \(ctx, payload\)"),
        (only_by_name, "'order' only by name"),
        (yields, "yields"),
        (ayields, "yields"),
        ("charge", "expected a function"),
        (None, "expected a function"),
    ],
)
def test_what_cannot_be_called_with_a_context_and_a_payload_is_refused(
    handler: Any, told: str
) -> None:
    with pytest.raises(InvalidInput, match=told):
        app().job("k")(handler)


def plain(ctx, order): ...  # type: ignore[no-untyped-def]
def named(context: Context) -> None: ...
def anything(ctx: Any, order: Order) -> None: ...
def an_object(ctx: object) -> None: ...
def optional(ctx: Context | None = None) -> None: ...
def narrow(ctx: Narrow) -> None: ...
def special(ctx: Special) -> None: ...
def generic(ctx: C, order: Order) -> None: ...
def noted(ctx: Annotated[Context, "note"]) -> None: ...
def unseen(ctx: Unseen) -> None: ...
def defaulted(ctx: Context, order: Order | None = None, *, more: int = 1) -> None: ...


class Service:
    def method(self, ctx: Context, order: Order) -> None: ...

    def __call__(self, ctx: Context) -> None: ...


@wraps(named)
def wrapped(*args: Any) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        *(plain, named, anything, an_object, optional, narrow, special, generic, noted, unseen),
        *(
            defaulted,
            pytest.param(wrapped, id="wrapped"),
            Service().method,
            Service(),
            partial(plain),
            lambda ctx: ctx,
        ),
    ],
)
def test_whatever_can_be_a_context_is_accepted(handler: Callable[..., Any]) -> None:
    assert app().job("k")(handler) is handler
