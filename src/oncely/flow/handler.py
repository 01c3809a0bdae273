"""Handlers: the functions that kinds name, with their policy and the type of their payload."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec

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

    def arguments(self, context: Any, text: str) -> tuple[Any, ...]:
        """What the function is called with. A payload that does not fit raises ValueError."""
        if not self.takes_payload:
            return (context,)
        if self.payload_type is Any:
            return context, context.payload
        return context, _convert(text, self.payload_type)


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
    ) -> None:
        check_name(kind, "kind")
        if kind in self._handlers:
            raise InvalidInput(
                f"kind {kind!r} has a handler already "
                f"({self._handlers[kind].function.__qualname__}); one kind names one handler"
            )
        if retry is not None and not isinstance(retry, Retry):
            raise InvalidInput(f"retry is {retry!r}; expected Retry(max_attempts=…, …)")
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
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    if not parameters or len(required) > 2:
        raise InvalidInput(
            f"the handler of kind {kind!r} takes {len(parameters)} arguments; expected (ctx) or "
            "(ctx, payload)"
        )
    if len(parameters) == 1:
        return False, None
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise InvalidInput(
            f"the handler of kind {kind!r} has an annotation that cannot be resolved: {error}"
        ) from None
    return True, hints.get(parameters[1].name, Any)


def _convert(text: str, wanted: Any) -> Any:
    validate = getattr(wanted, "model_validate_json", None)
    if validate is not None:
        return validate(text)
    return msgspec.json.decode(text, type=wanted)
