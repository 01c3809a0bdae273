"""Refusals, as RFC 9457 has them: `application/problem+json`, each with a `code` that stays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from oncely.model import errors
from oncely.store.remote.mirror import camel


class Problem(msgspec.Struct, frozen=True):
    """What a code means. `retryable`: the same request can succeed later, unchanged."""

    status: int
    title: str
    retryable: bool = False


PROBLEMS: Final[dict[str, Problem]] = {
    "malformed_request": Problem(400, "The request cannot be read"),
    "malformed_json": Problem(400, "The body is not JSON"),
    "invalid_header": Problem(400, "A header cannot be used"),
    "idempotency_key_missing": Problem(400, "An idempotency key is missing"),
    "idempotency_key_differs": Problem(400, "Header and body have different idempotency keys"),
    "unauthenticated": Problem(401, "No valid key"),
    "scope_missing": Problem(403, "The key has not the scope that this takes"),
    "queue_forbidden": Problem(403, "The key is not for this queue"),
    "not_this_machine": Problem(403, "The store is open to this machine only"),
    "cross_site": Problem(403, "The request comes from another site"),
    "not_found": Problem(404, "There is nothing at this path"),
    "job_not_found": Problem(404, "There is no such job"),
    "effect_not_found": Problem(404, "No such effect is in doubt"),
    "method_not_allowed": Problem(405, "The path has no such method"),
    "request_too_slow": Problem(408, "The request did not arrive in time", retryable=True),
    "body_too_slow": Problem(408, "The body did not arrive in time", retryable=True),
    "wrong_state": Problem(409, "The job is in a state in which this cannot be done"),
    "unique_key_taken": Problem(409, "Another active job holds the unique key"),
    "in_doubt": Problem(409, "An effect of the job is in doubt"),
    "lease_lost": Problem(409, "Another execution holds the job, or it has ended"),
    "body_too_large": Problem(413, "The body is too large"),
    "unsupported_media_type": Problem(415, "The body is not sent as JSON"),
    "invalid_request": Problem(422, "The request is not as expected"),
    "idempotency_key_mismatch": Problem(422, "The idempotency key belongs to another request"),
    "push_target_refused": Problem(422, "The push target is refused"),
    "rate_limited": Problem(429, "Too many requests with this key", retryable=True),
    "headers_too_large": Problem(431, "The headers are too large"),
    "internal_error": Problem(500, "Something went wrong here"),
    "too_many_connections": Problem(503, "Too many connections", retryable=True),
    "store_unavailable": Problem(503, "The store cannot be reached", retryable=True),
}
MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 1


class Detail(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One thing that is wrong: where (`$.jobs[3].kind`), of a batch in which item, and what."""

    message: str
    path: str | None = None
    index: int | None = None


class ProblemBody(msgspec.Struct, frozen=True, rename="camel"):
    """What is sent."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    job_id: str | msgspec.UnsetType = msgspec.UNSET
    errors: list[Detail] | msgspec.UnsetType = msgspec.UNSET


class Refused(Exception):
    """Raised wherever a request cannot be carried out; it becomes the answer."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        job_id: str | None = None,
        errors: Sequence[Detail] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.problem = PROBLEMS[code]
        self.detail = detail
        self.job_id = job_id
        self.errors = list(errors)
        self.headers = dict(headers or {})
        if self.problem.retryable:
            self.headers.setdefault("retry-after", str(RETRY_SECONDS))

    @property
    def status(self) -> int:
        return self.problem.status

    def body(self) -> bytes:
        return msgspec.json.encode(
            ProblemBody(
                type="about:blank",
                title=self.problem.title,
                status=self.status,
                detail=self.detail,
                code=self.code,
                retryable=self.problem.retryable,
                job_id=self.job_id or msgspec.UNSET,
                errors=self.errors or msgspec.UNSET,
            )
        )


_CODES: Final[dict[type[errors.OncelyError], str]] = {
    errors.KeyConflict: "idempotency_key_mismatch",
    errors.JobNotFound: "job_not_found",
    errors.EffectNotFound: "effect_not_found",
    errors.WrongState: "wrong_state",
    errors.UniqueKeyTaken: "unique_key_taken",
    errors.InDoubt: "in_doubt",
    errors.LeaseLost: "lease_lost",
    errors.PushRefused: "push_target_refused",
    errors.InvalidInput: "invalid_request",
    errors.StoreError: "store_unavailable",
}
_OPTION: Final = re.compile(
    r"^(delay and )?(run_at|idempotency_key|unique_key|group_key|max_attempts|require_key)(?= )"
)
_ITS_OWN_WORDS: Final = frozenset(_CODES.values()) - {"store_unavailable"}


def of(error: errors.OncelyError) -> Refused | None:
    """The refusal that an error of Oncely is; None if a client is not to hear of it. What the
    store says of itself is not told: it may name hosts and statements."""
    code = next((_CODES[each] for each in type(error).__mro__ if each in _CODES), None)
    if code is None:
        return None
    if code not in _ITS_OWN_WORDS:
        return Refused(code, "The store cannot be reached, or is not ready. Repeat the request.")
    # Of a unique key that is taken, the job to look at is the one that holds it.
    job_id: Any = getattr(error, "holder_id", None) or getattr(error, "job_id", None)
    if code != "invalid_request":
        return Refused(code, str(error), job_id=job_id)
    words = named(str(error))
    return Refused(code, words, job_id=job_id, errors=[Detail(words)])


def named(words: str) -> str:
    """What the model says of an option, by the name that it has here."""
    return _OPTION.sub(lambda found: (found[1] or "") + camel(found[2]), words)
