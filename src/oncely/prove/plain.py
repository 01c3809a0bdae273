"""A function, a task of another queue, or a request to a web app, as the handler of an app."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from oncely.flow.context import Context
from oncely.model.errors import InvalidInput
from oncely.model.retry import Retry
from oncely.prove.abandoned import own_folder
from oncely.prove.celery_task import celery_handler, is_celery_task
from oncely.prove.django_project import is_django_task, run_django_task
from oncely.prove.web import is_request, is_web_app, web_handler
from oncely.surface.app import Oncely

_KIND: Final = "proved"
_TARGET: Final = "oncely_target"


class Arguments(msgspec.Struct, frozen=True):
    """What a target gets besides a payload."""

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}


class Subject(msgspec.Struct, frozen=True):
    """What is proved: a handler of an app, and its name in the report."""

    app: Oncely
    kind: str
    title: str
    is_job: bool = False


@contextmanager
def as_app(target: Any, kind: str | None, given: Arguments) -> Iterator[Subject]:
    if isinstance(target, Oncely):
        if given.args or given.kwargs or given.headers:
            raise InvalidInput("args, kwargs and headers are not for a job: it has a payload")
        name = _check(target, kind)
        yield Subject(target, name, name, is_job=True)
        return
    title = _title_of(target, kind, given)
    with own_folder() as folder, Oncely(f"sqlite:///{folder}/jobs.db") as app:
        handler = _handler_of(target, title, given, app)
        app.job(_KIND, retry=Retry(base=0, jitter=False))(handler)
        yield Subject(app, _KIND, title)


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


def target_of(handler: Callable[..., Any]) -> tuple[Callable[..., Any], Arguments | None]:
    """The function or the task that it calls, with its arguments; or itself."""
    found: tuple[Callable[..., Any], Arguments | None]
    found = getattr(handler, _TARGET, (handler, None))
    return found


def _title_of(target: Any, kind: Any, given: Arguments) -> str:
    if is_web_app(target):
        if not is_request(kind):
            raise InvalidInput(
                f"the request is {kind!r}; expected METHOD /path, such as 'POST /orders'"
            )
        if given.args or given.kwargs:
            raise InvalidInput("a request takes a payload and headers, not args or kwargs")
        return str(kind)
    if not callable(target) and not is_django_task(target):
        raise InvalidInput(
            f"prove got {target!r}; expected an Oncely app, a function, a task of another queue, "
            "or a web app"
        )
    if given.headers or is_request(kind):
        raise InvalidInput(
            f"{task_name(target)} is a function, and no web app: it takes no request"
        )
    if kind is not None and not isinstance(kind, str):
        raise InvalidInput(
            f"kind is {kind!r}; expected a name. For a function the payload is given by name: "
            "prove(function, payload=…, world=[…])"
        )
    return kind or task_name(target)


def task_name(target: Any) -> str:
    """As its queue names it: Dramatiq, Django, Celery and RQ."""
    for attribute in ("actor_name", "module_path", "__name__", "name"):
        name = getattr(target, attribute, None)
        if isinstance(name, str):
            return name
    return "function"


def _handler_of(target: Any, title: str, given: Arguments, app: Oncely) -> Callable[..., Any]:
    if is_web_app(target):
        return web_handler(target, title, given.headers, app)
    return as_handler(target, given, app)


def as_handler(target: Any, given: Arguments, app: Oncely) -> Callable[..., Any]:
    handler = _call(target, given, app)
    setattr(handler, _TARGET, (target, given))
    return handler


def _call(target: Any, given: Arguments, app: Oncely) -> Callable[..., Any]:
    def args(payload: Any) -> Sequence[Any]:
        return given.args if payload is None else (payload,)

    if is_celery_task(target):
        return celery_handler(target, app, args, given.kwargs)
    if is_django_task(target):

        def run_task(ctx: Context, payload: Any) -> Any:
            return run_django_task(target, ctx, args(payload), given.kwargs)

        return run_task
    if inspect.iscoroutinefunction(target):

        async def acall(_: Context, payload: Any) -> Any:
            return await target(*args(payload), **given.kwargs)

        return acall

    def call(_: Context, payload: Any) -> Any:
        return target(*args(payload), **given.kwargs)

    return call
