"""Every error of Oncely: one root, and a branch for each answer to "whose move is it now?"."""

from __future__ import annotations

from shlex import quote
from typing import Any


class OncelyError(Exception):
    """The root of all errors that Oncely raises."""


class UsageError(OncelyError):
    """The call cannot be carried out as it was made: change the call."""


class RaceError(OncelyError):
    """Somebody else was first: look again, then decide."""


class StoreError(OncelyError):
    """The store cannot serve the call: mend the store, then repeat the call."""


class InvalidInput(UsageError, ValueError):
    """An argument is not of the form that was expected. Nothing was stored."""


class PushRefused(InvalidInput):
    """A push target that may not be: it leads to an address that is not public, or it is no URL
    that a job could be pushed to. Nothing was stored."""


class KeyConflict(UsageError):
    """An idempotency key came back with another kind or payload. Nothing was stored.

    `job_id` is the job that the key belongs to, and None if that job was part of the same
    refused call.
    """

    def __init__(self, key: str, queue: str, job_id: str | None) -> None:
        self.key = key
        self.queue = queue
        self.job_id = job_id
        first = f"job {job_id}" if job_id else "an earlier item of the same call"
        super().__init__(
            f"idempotency key {key!r} in queue {queue!r} belongs to {first}, which has another "
            "kind or payload; nothing was stored. Use one key per logical operation, and the "
            "same kind and payload whenever you repeat it."
        )


class JobNotFound(UsageError, LookupError):
    """No job has this id: it never existed here, or it was pruned."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(
            f"there is no job {job_id!r} in this store: check the id and the store's URL; jobs "
            "that ended long ago are pruned"
        )


class WrongState(UsageError):
    """The job is in a state in which this cannot be done."""

    def __init__(self, job_id: str, state: str, verb: str, allowed: tuple[str, ...]) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(
            f"job {job_id} is {state}; only jobs in state {' or '.join(allowed)} can be {verb}"
        )


class ScheduleNotFound(UsageError, LookupError):
    """No schedule has this name: it was never declared, or it was removed."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"there is no schedule {name!r} in this store: check the name and the store's URL; a "
            "schedule is there once a worker that declares it has run"
        )


class ScheduleDeclared(UsageError):
    """The schedule cannot be removed: a worker that declares it runs, and it would come back."""

    def __init__(self, name: str, gone_seconds: int) -> None:
        self.name = name
        super().__init__(
            f"schedule {name!r} is in the code of a worker that ran within the last "
            f"{gone_seconds} seconds, and would come back: take it out of the code first, or "
            "pause it"
        )


class TokenNotFound(UsageError, LookupError):
    """No token has this id or, where a valid one is needed, it was revoked or has expired."""

    def __init__(self, token_id: str, *, valid: bool = False) -> None:
        self.token_id = token_id
        wanted = "valid token" if valid else "token"
        super().__init__(
            f"there is no {wanted} {token_id!r} in this store: `oncely token list` shows them"
        )


class UserNotFound(UsageError, LookupError):
    """No user has this name, or it was removed."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no user {name!r} in this store: `oncely user list` shows them")


class NotOverHttp(UsageError):
    """This takes the store itself, and this `Oncely` reaches it through a server."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} cannot be done through a server: it takes a connection to the store's own "
            "database. Use an Oncely with the store's URL (sqlite:///… or postgresql://…) for it"
        )


class AccessRefused(UsageError):
    """The server refuses the API key, or what this key asks for."""


class BlockingCall(UsageError, RuntimeError):
    """A verb that waits was called in a running event loop, where nothing else could run meanwhile.
    Nothing was done; `instead` is what to write there."""

    def __init__(self, verb: str, instead: str) -> None:
        self.instead = instead
        super().__init__(
            f"{verb} would block the running event loop: in async code use `{instead}`"
        )


class EffectMismatch(UsageError):
    """An effect of the same name came back with other arguments, or as another verb. It was not
    done. `job_id` is None for an entry of a `Ledger`."""

    def __init__(self, job_id: str | None, name: str) -> None:
        self.job_id = job_id
        self.name = name
        super().__init__(
            f"{_effect(job_id, name)} was begun with other arguments, or as another verb: what "
            "runs again must ask for the same. Take what changes (clocks, random ids) from the "
            "payload or from an earlier step, or name another effect"
        )


class EffectNotFound(UsageError, LookupError):
    """The job has no effect of this name in doubt."""

    def __init__(self, job_id: str | None, name: str, in_doubt: list[str]) -> None:
        self.job_id = job_id
        self.name = name
        there = ", ".join(map(repr, in_doubt)) or "nothing"
        super().__init__(f"{_effect(job_id, name)} is not in doubt; in doubt is: {there}")


class RequestNotFound(UsageError, LookupError):
    """No HTTP request with this idempotency key is in doubt."""

    def __init__(self, key: str, in_doubt: list[str]) -> None:
        self.key = key
        there = ", ".join(map(repr, in_doubt)) or "none"
        super().__init__(f"no request with key {key!r} is in doubt; in doubt is: {there}")


class InDoubt(RaceError):
    """Nobody knows whether an effect happened: the job is held until somebody says."""

    def __init__(self, job_id: str | None, name: str, why: str) -> None:
        self.job_id = job_id
        self.name = name
        if job_id is None:
            call = f"`ledger.resolve({name!r}, happened=True)` or `happened=False`"
            held = f"It is not done again; find out, and say so with {call}"
        else:
            command = f"`oncely resolve {job_id} {quote(name)} --happened` or `--did-not-happen`"
            held = f"The job is held; find out, and say so with {command}"
        super().__init__(f"{_effect(job_id, name)} is in doubt: {why}. {held}")


class InProgress(RaceError):
    """Another call with this key of a ledger has not ended in time. Nothing was done here."""

    def __init__(self, key: str, waited_seconds: float) -> None:
        self.key = key
        super().__init__(
            f"another call with key {key!r} was still at work after {waited_seconds:g} seconds: "
            "nothing was done by this one. Repeat it later"
        )


class UniqueKeyTaken(RaceError):
    """The job's unique key is held by another active job, named in `holder_id`."""

    def __init__(self, job_id: str, kind: str, key: str, holder_id: str) -> None:
        self.job_id = job_id
        self.holder_id = holder_id
        super().__init__(
            f"job {job_id} cannot be replayed: its unique key {key!r} of kind {kind!r} is held "
            f"by job {holder_id}. Replay it once that job has ended, or cancel that one first."
        )


class LeaseLost(RaceError):
    """This execution no longer holds its job, so what it wanted to write was refused."""

    def __init__(self, job_id: str, epoch: int) -> None:
        self.job_id = job_id
        self.epoch = epoch
        super().__init__(
            f"the lease on job {job_id} (epoch {epoch}) is lost: another worker may run it, and "
            "nothing of this execution was written"
        )


class SchemaError(StoreError):
    """The store's tables are missing, older or newer than this version of Oncely."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, or refused to work. The cause is attached."""


class WorkerStuck(OncelyError):
    """Every place of a worker is taken by a `def` handler that has not returned after its time-out.
    The worker has handed back what it had not begun: start it again, in a new process."""

    def __init__(self, concurrency: int) -> None:
        handlers = "handler has" if concurrency == 1 else "handlers have"
        super().__init__(
            f"{concurrency} {handlers} not returned after their time-out, and the worker has no "
            "place left: a thread cannot be ended from outside, so start the process again. Give "
            "what such handlers wait for a time-out of its own"
        )


class NoResult(OncelyError):
    """`result` has nothing to return: the job ended without a result, or not in time."""

    def __init__(self, job_id: str, told: str) -> None:
        self.job_id = job_id
        super().__init__(f"job {job_id} {told}")


class JobFailed(NoResult):
    """The job failed. `error` is what its last execution left: type, message, traceback."""

    def __init__(self, job_id: str, error: Any) -> None:
        self.error = error
        super().__init__(job_id, f"failed{_reason(error)}; `app.replay(job_id)` puts it back")


class JobCancelled(NoResult):
    """The job was cancelled, from outside or, with an `error` that says why, by its handler."""

    def __init__(self, job_id: str, error: Any) -> None:
        self.error = error
        super().__init__(job_id, f"was cancelled{_reason(error)}")


class ResultTimeout(NoResult, TimeoutError):
    """The job has not ended in time. It goes on, and its result can be asked for again."""

    def __init__(self, job_id: str, seconds: float) -> None:
        super().__init__(
            job_id,
            f"has not ended within {seconds:g} seconds; it goes on, and can be asked for again",
        )


def _effect(job_id: str | None, name: str) -> str:
    return f"entry {name!r} of the ledger" if job_id is None else f"effect {name!r} of job {job_id}"


def _reason(error: Any) -> str:
    """The first line of a kept error."""
    if not isinstance(error, dict):
        return ""
    lines = str(error.get("message") or "").splitlines()
    return f": {error.get('type')}: {lines[0][:200]}" if lines else f": {error.get('type')}"


class KeyWarning(UserWarning):
    """A key looks random or like a clock reading, so a repeat would not be recognised."""
