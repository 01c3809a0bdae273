"""Refusals, as RFC 9457 has them: `application/problem+json`, each with a `code` that stays."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from oncely.surface.asgi.types import Send

_RETRY_SECONDS: Final = 1


class Problem(msgspec.Struct, frozen=True):
    status: int
    code: str
    title: str
    detail: str
    retryable: bool = False
    more: dict[str, Any] = {}

    async def send(self, send: Send) -> None:
        body = msgspec.json.encode(
            {
                "type": "about:blank",
                "title": self.title,
                "status": self.status,
                "detail": self.detail,
                "code": self.code,
                "retryable": self.retryable,
                **self.more,
            }
        )
        headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
        ]
        if self.retryable:
            headers.append((b"retry-after", b"%d" % _RETRY_SECONDS))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


MISSING: Final = Problem(
    400,
    "idempotency_key_missing",
    "Idempotency-Key is missing",
    "This request must come with an Idempotency-Key header: a value of your own making that is the "
    "same whenever you repeat the request, and another for every other one.",
)
IN_FLIGHT: Final = Problem(
    409,
    "request_in_flight",
    "The first request is still in flight",
    "A request with this Idempotency-Key has been received and has not been answered yet. Repeat "
    "this one later, with the same key, to get its response.",
    retryable=True,
)
UNKNOWN: Final = Problem(
    409,
    "outcome_unknown",
    "The outcome of the first request is not known",
    "A request with this Idempotency-Key was begun and ended without a response: what it did is "
    "not known, and it is not run again. Find out whether it took effect; if it did not, send it "
    "with a new key. Who runs this service can say what happened; then a repeat with this key is "
    "answered.",
)
OTHER_CALLER: Final = Problem(
    409,
    "idempotency_key_of_another_caller",
    "Idempotency-Key was used by another caller",
    "A request with this Idempotency-Key came with other credentials. It is not run, and the "
    "response is not sent to anybody else. Use a key of your own; if your credentials have changed "
    "since, sign in as before or find out whether the request took effect.",
)
MISMATCH: Final = Problem(
    422,
    "idempotency_key_mismatch",
    "Idempotency-Key was used for another request",
    "A request with this Idempotency-Key had another method, path, query or body. Use one key per "
    "operation, and repeat a request unchanged.",
)
STORE_UNAVAILABLE: Final = Problem(
    503,
    "store_unavailable",
    "The request could not be recorded",
    "The record of Idempotency-Keys cannot be reached, so this request was not run. Repeat it "
    "later, with the same key.",
    retryable=True,
)


def invalid(why: str) -> Problem:
    return Problem(
        400, "idempotency_key_invalid", "Idempotency-Key is not valid", f"Idempotency-Key: {why}."
    )


def too_large(limit: int) -> Problem:
    return Problem(
        413,
        "body_too_large",
        "The body is too large",
        f"The body of a request with an Idempotency-Key may have {limit:,} bytes. It was not run.",
        more={"limitBytes": limit},
    )


def not_kept(status: int) -> Problem:
    return Problem(
        409,
        "response_not_kept",
        "The first request was answered, and its response was too large to keep",
        f"A request with this Idempotency-Key was answered with status {status}. It is not run "
        "again, and its response cannot be sent again: ask for what it made.",
        more={"firstStatus": status},
    )
