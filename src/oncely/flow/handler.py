"""Handlers: the functions that kinds name, with their policy and the type of their payload."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from oncely.flow.context import Context
from oncely.model.draft import check_name, check_timeout
from oncely.model.errors import InvalidInput
from oncely.model.retry import Retry


class Handler(msgspec.Struct, frozen=True):
    kind: str
    function: Callable[..., Any]
    queue: str
    retry: Retry | None
    timeout_seconds: float | None
    takes_payload: bool
    payload_type: Any
    is_async: bool
    drill: bool = False
    """Whether its jobs may be delivered once more, to see what that would repeat."""
    convert: Callable[[str], Any] | None = None
    """From the text of a payload to its type."""

    def arguments(self, context: Any, text: str) -> tuple[Any, ...]:
        """What the function is called with. A payload that does not fit raises ValueError."""
        if not self.takes_payload:
            return (context,)
        if self.payload_type is Any:
            return context, context.payload
        convert = self.convert or _converter(self.payload_type)
        return context, convert(text)


class Registry:
    """The handlers of one app, by kind."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(
        self,
        kind: str,
        function: Callable[..., Any],
        *,
        queue: str,
        retry: Retry | None,
        timeout: float | None,
        drill: bool = False,
    ) -> None:
        check_name(kind, "kind")
        if kind in self._handlers:
            raise InvalidInput(
                f"kind {kind!r} has a handler already "
                f"({self._handlers[kind].function.__qualname__}); one kind names one handler"
            )
        if retry is not None and not isinstance(retry, Retry):
            raise InvalidInput(f"retry is {retry!r}; expected Retry(max_attempts=…, …)")
        if not isinstance(drill, bool):
            raise InvalidInput(f"drill is {drill!r}; expected True or False")
        takes_payload, payload_type = _second_parameter(kind, function)
        self._handlers[kind] = Handler(
            kind=kind,
            function=function,
            queue=check_name(queue, "queue"),
            retry=retry,
            timeout_seconds=check_timeout(timeout),
            takes_payload=takes_payload,
            payload_type=payload_type,
            is_async=inspect.iscoroutinefunction(inspect.unwrap(function)),
            drill=drill,
            convert=_converter_if_any(payload_type),
        )

    def get(self, kind: str) -> Handler | None:
        return self._handlers.get(kind)

    def queue_of(self, kind: str) -> str:
        """The queue that the kind's handler declares."""
        handler = self._handlers.get(kind)
        return handler.queue if handler else "default"


def _second_parameter(kind: str, function: Callable[..., Any]) -> tuple[bool, Any]:
    if not callable(function):
        raise InvalidInput(f"the handler of kind {kind!r} is {function!r}; expected a function")
    signature = inspect.signature(function).parameters.values()
    parameters = [
        parameter
        for parameter in signature
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    for parameter in signature:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise InvalidInput(
                f"the handler of kind {kind!r} takes {parameter.name!r} only by name; expected "
                "(ctx) or (ctx, payload)"
            )
    inner = inspect.unwrap(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise InvalidInput(
            f"the handler of kind {kind!r} yields, so a call of it runs nothing: return a value"
        )
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    if not parameters or len(required) > 2:
        raise InvalidInput(
            f"the handler of kind {kind!r} takes {len(parameters)} arguments; expected (ctx) or "
            "(ctx, payload)"
        )
    try:
        hints = get_type_hints(function)
    except TypeError:  # a partial, or an object that can be called, has no annotations of its own
        hints = {}
    except NameError as error:
        if len(parameters) == 1:  # what only type checkers know need not be known here
            return False, None
        raise InvalidInput(
            f"the handler of kind {kind!r} has an annotation that cannot be resolved: {error}"
        ) from None
    _check_context_is_first(kind, function, [hints.get(each.name, Any) for each in parameters])
    if len(parameters) == 1:
        return False, None
    return True, hints.get(parameters[1].name, Any)


def _check_context_is_first(kind: str, function: Callable[..., Any], hints: list[Any]) -> None:
    second = hints[1] if len(hints) > 1 else Any
    if _may_be_context(hints[0]) and not (isinstance(second, type) and issubclass(second, Context)):
        return
    first = next(iter(inspect.signature(function).parameters))
    if hints[0] is not Any:
        type_name = hints[0].__name__ if type(hints[0]) is type else str(hints[0])
        first = f"{first}: {type_name}"
    name = getattr(function, "__name__", "handler")
    raise InvalidInput(
        f"{name}, the handler of kind {kind!r}, begins with ({first}), and a handler takes the "
        f"context first: {name}(ctx: Context, {first})"
    )


def _may_be_context(hint: Any) -> bool:
    """Whether a parameter of this annotation takes a `Context`; True where that is not known."""
    origin = get_origin(hint) or hint
    if origin in (Union, UnionType):
        return any(_may_be_context(each) for each in get_args(hint))
    if hint is Any or not isinstance(origin, type) or getattr(origin, "_is_protocol", False):
        return True
    return issubclass(origin, Context) or issubclass(Context, origin)


def _converter(wanted: Any) -> Callable[[str], Any]:
    validate: Callable[[str], Any] | None = getattr(wanted, "model_validate_json", None)
    return msgspec.json.Decoder(wanted).decode if validate is None else validate


def _converter_if_any(wanted: Any) -> Callable[[str], Any] | None:
    """A type that nothing can be read into is told with the job that meets it."""
    try:
        return _converter(wanted)
    except Exception:
        return None
