"""What an answer of an HTTP server means that a client raised as an exception.

The clients are httpx2, httpx, requests and aiohttp. None of them is imported here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from oncely.model.proof import is_refused_connection, made_earlier_requests

BUSY: Final = frozenset({429, 503, 529})
"""Not now: the job comes back, and no attempt is used."""
_REFUSED: Final = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422, 429})
_CLIENTS: Final = frozenset({"aiohttp", "httpx", "httpx2", "requests"})
_SHORTEST_DEFER_SECONDS: Final = 0.5
_LONGEST_DEFER_SECONDS: Final = 86_400.0


def http_refused(error: BaseException) -> bool:
    """For `not_done=`: whether the server answered that it refuses the request (400, 401, 403, 404,
    405, 410, 413, 415, 422 or 429).

    An answer that came after a redirect, or after a try that may have arrived, proves nothing.
    """
    return _status(error) in _REFUSED and not _has_earlier_requests(error)


def busy_seconds(error: BaseException, now: datetime) -> float | None:
    """For how long to wait before the next request, if the server answered 429, 503 or 529 and said
    so in `Retry-After`."""
    if _status(error) not in BUSY:
        return None
    headers = getattr(_answer(error), "headers", None)
    value = None if headers is None else headers.get("Retry-After")
    return retry_after_seconds(value, now)


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """`Retry-After` in both its forms, bounded. None if it is missing or cannot be read."""
    text = (value or "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        # A date that names no zone is in GMT, as all dates of HTTP are.
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        seconds = (at - now).total_seconds()
    return min(max(seconds, _SHORTEST_DEFER_SECONDS), _LONGEST_DEFER_SECONDS)


def _answer(error: BaseException) -> Any:
    """What has the headers: the response, or with aiohttp the exception itself."""
    response = getattr(error, "response", None)
    return error if response is None else response


def _status(error: BaseException) -> int | None:
    if not any(cls.__module__.partition(".")[0] in _CLIENTS for cls in type(error).__mro__):
        return None
    answer = _answer(error)
    status = getattr(answer, "status" if answer is error else "status_code", None)
    return status if isinstance(status, int) else None


def _has_earlier_requests(error: BaseException) -> bool:
    answer = _answer(error)
    if getattr(answer, "history", None) or made_earlier_requests(error):
        return True
    # Of requests: the tries that urllib3 made before, each with its status or its error.
    tries = getattr(getattr(answer, "raw", None), "retries", None)
    return any(
        each.status not in _REFUSED and not is_refused_connection(each.error)
        for each in getattr(tries, "history", ())
    )
