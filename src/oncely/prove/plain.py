"""A plain function, or a task of another queue, as the handler of an app of its own."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from oncely.flow.context import Context
from oncely.model.errors import InvalidInput
from oncely.model.retry import Retry
from oncely.prove.celery_task import celery_handler, is_celery_task
from oncely.surface.app import Oncely

_TARGET: Final = "oncely_target"


@contextmanager
def as_app(target: Any, kind: str | None) -> Iterator[tuple[Oncely, str]]:
    if isinstance(target, Oncely):
        yield target, _check(target, kind)
        return
    if not callable(target):
        raise InvalidInput(f"prove got {target!r}; expected an Oncely app, or a function")
    if kind is not None and not isinstance(kind, str):
        raise InvalidInput(
            f"kind is {kind!r}; expected a name. For a function the payload is given by name: "
            "prove(function, payload=…, world=[…])"
        )
    with (
        tempfile.TemporaryDirectory(prefix="oncely-prove-") as folder,
        Oncely(f"sqlite:///{folder}/jobs.db") as app,
    ):
        name = kind or getattr(target, "__name__", None) or "function"
        app.job(name, retry=Retry(base=0, jitter=False))(as_handler(target, app))
        yield app, name


def _check(app: Oncely, kind: str | None) -> str:
    if app._closed:
        raise InvalidInput(
            "the app that is to be proved is closed; expected an open one: call prove before "
            "app.close(), or inside the `with` of the app"
        )
    known = sorted(app._registry._handlers)
    if kind is None or app._registry.get(kind) is None:
        told = ", ".join(known) or "none"
        raise InvalidInput(f"kind is {kind!r}; the app has handlers of: {told}")
    return kind


def target_of(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function that it calls, or itself."""
    target: Callable[..., Any] = getattr(handler, _TARGET, handler)
    return target


def as_handler(target: Callable[..., Any], app: Oncely) -> Callable[..., Any]:
    handler = celery_handler(target, app) if is_celery_task(target) else _call(target)
    setattr(handler, _TARGET, target)
    return handler


def _call(target: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(target):

        async def acall(_: Context, payload: Any) -> Any:
            return await (target() if payload is None else target(payload))

        return acall

    def call(_: Context, payload: Any) -> Any:
        return target() if payload is None else target(payload)

    return call
