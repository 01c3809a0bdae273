"""Refusals of the server, as the errors that the store itself would have raised."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from oncely.model import errors
from oncely.model.errors import OncelyError

_ERRORS: Final[dict[str, type[OncelyError]]] = {
    "idempotency_key_mismatch": errors.KeyConflict,
    "job_not_found": errors.JobNotFound,
    "effect_not_found": errors.EffectNotFound,
    "wrong_state": errors.WrongState,
    "unique_key_taken": errors.UniqueKeyTaken,
    "in_doubt": errors.InDoubt,
    "lease_lost": errors.LeaseLost,
    "push_target_refused": errors.PushRefused,
    "unauthenticated": errors.AccessRefused,
    "scope_missing": errors.AccessRefused,
    "queue_forbidden": errors.AccessRefused,
    "not_this_machine": errors.AccessRefused,
    "cross_site": errors.AccessRefused,
    "store_unavailable": errors.StoreUnavailable,
    "rate_limited": errors.StoreUnavailable,
    "internal_error": errors.StoreUnavailable,
}


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """What is needed of an `application/problem+json`."""

    code: str
    detail: str
    job_id: str | None = None


def read(body: bytes) -> Problem | None:
    """None if it is not one of ours."""
    try:
        return msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def raised(problem: Problem, known: dict[str, Any]) -> OncelyError:
    """The error, in the server's words. `known` are attributes that the caller knows of it."""
    kind = _ERRORS.get(problem.code, errors.InvalidInput)
    if kind is errors.StoreUnavailable:
        return errors.StoreUnavailable(f"the server cannot serve this now: {problem.detail}")
    # Its own constructor would make the words anew, of parts that do not travel.
    error: OncelyError = kind.__new__(kind, problem.detail)
    for name, value in known.items():
        setattr(error, name, value)
    if problem.job_id is not None:
        setattr(
            error, "holder_id" if problem.code == "unique_key_taken" else "job_id", problem.job_id
        )
    return error
