"""Errors that prove that nothing happened."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from oncely.model.effect_options import NotDoneRule

_CLIENTS: Final = frozenset({"aiohttp", "httpx", "httpx2", "requests", "urllib", "urllib3"})
_DEPTH: Final = 10
_ONCE: Final = frozenset({("requests.sessions", "send"), ("urllib.request", "open")})
"""Functions of clients that call themselves to follow a redirect."""


def proves_not_done(error: BaseException, not_done: NotDoneRule) -> bool:
    """Whether the error shows that nothing was sent: a refused connection, or what the caller knows
    to show it. A time-out shows nothing."""
    if _is_known(error, not_done):
        return True
    return is_refused_connection(error) and not made_earlier_requests(error)


def is_refused_connection(error: Any) -> bool:
    return _is_refusal(error, _DEPTH)


def made_earlier_requests(error: BaseException) -> bool:
    """Whether the frames of the client show that this error is not of its first request."""
    return _tried_before(error, _DEPTH)


def _is_known(error: BaseException, not_done: NotDoneRule) -> bool:
    if isinstance(not_done, tuple | type):
        return isinstance(error, not_done)
    try:
        return bool(not_done(error))
    except Exception as trouble:
        error.add_note(f"not_done= raised {trouble!r}, so nobody knows whether anything was sent")
        return False


def _is_refusal(error: Any, depth: int) -> bool:
    if isinstance(error, BaseExceptionGroup):
        # One per address of the other side: all of them must have refused.
        return all(_is_refusal(member, depth - 1) for member in error.exceptions)
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return True
    return depth > 0 and any(_is_refusal(cause, depth - 1) for cause in _causes(error))


def _causes(error: Any) -> Iterator[BaseException]:
    """How the HTTP clients wrap what the socket said. Not `__context__`: that may be an earlier
    error which was dealt with."""
    if not isinstance(error, BaseException):
        return
    candidates = (
        error.__cause__,
        getattr(error, "reason", None),
        getattr(error, "os_error", None),
        *error.args,
    )
    for candidate in candidates:
        if isinstance(candidate, BaseException) and candidate is not error:
            yield candidate


def _tried_before(error: BaseException, depth: int) -> bool:
    """Whether this refusal came after a redirect, or after a try that may have been sent: the
    client went on by itself, and its error speaks of the last request only. What came before is
    nowhere but in its frames."""
    passed = set()
    for frame in _frames(error):
        place = (frame.f_globals.get("__name__", ""), frame.f_code.co_name)
        if place[0].partition(".")[0] not in _CLIENTS:
            continue
        if place in passed:
            return True
        if place in _ONCE:
            passed.add(place)
        known = frame.f_locals
        history = known.get("history") or getattr(known.get("retries"), "history", None) or ()
        if not all(_is_refusal(getattr(each, "error", None), _DEPTH) for each in history):
            return True
    return depth > 0 and any(_tried_before(cause, depth - 1) for cause in _causes(error))


def _frames(error: BaseException) -> Iterator[FrameType]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next
