"""Every error of Oncely: one root, and a branch for each answer to "whose move is it now?"."""

from __future__ import annotations


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


class KeyWarning(UserWarning):
    """A key looks random or like a clock reading, so a repeat would not be recognised."""
