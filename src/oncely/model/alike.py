"""Jobs that are alike, as most are that come together: checked and kept column by column.

A draft of each is made only when somebody asks for it, and on the usual way into the store nobody
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Final, overload

from msgspec import UNSET, UnsetType

from oncely.model import payload
from oncely.model.draft import NO_OPTIONS, OPTIONS, Draft, draft
from oncely.model.errors import InvalidInput
from oncely.model.job import NewJob
from oncely.model.keys import check_keys

_TERMS: Final = (
    "delay_us",
    "run_at_us",
    "unique_key",
    "group_key",
    "max_attempts",
    "timeout_seconds",
    "tags",
)
_NO_TERMS: Final = (0, *(None,) * 6)
_terms: Final = attrgetter(*_TERMS)
_shape: Final = attrgetter("kind", "queue", "priority", "traceparent", *_TERMS)
_shape_of_new: Final = attrgetter("kind", "queue", "priority", *OPTIONS)


class Alike(Sequence[Draft]):
    """Drafts that differ in nothing but their payloads and idempotency keys. They are due at once,
    and have no group, no unique key and no other options; all of them have keys, or none."""

    def __init__(
        self,
        first: Draft,
        ids: list[str],
        payloads: list[str],
        keys: list[str],
        fingerprints: list[str],
    ) -> None:
        self.kind = first.kind
        self.queue = first.queue
        self.priority = first.priority
        self.traceparent = first.traceparent
        self.ids = ids
        self.payloads = payloads
        self.keys = keys
        """None of them, or one for each."""
        self.fingerprints = fingerprints

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Draft]:
        return iter(self._drafts)

    @overload
    def __getitem__(self, index: int) -> Draft: ...

    @overload
    def __getitem__(self, index: slice) -> list[Draft]: ...

    def __getitem__(self, index: int | slice) -> Draft | list[Draft]:
        return self._drafts[index]

    @cached_property
    def _drafts(self) -> list[Draft]:
        nothing = [None] * len(self.ids)
        return [
            Draft(
                job_id,
                self.kind,
                self.queue,
                text,
                self.priority,
                0,
                None,
                key,
                fingerprint,
                *_NO_TERMS[2:],
                self.traceparent,
            )
            for job_id, text, key, fingerprint in zip(
                self.ids,
                self.payloads,
                self.keys or nothing,
                self.fingerprints or nothing,
                strict=True,
            )
        ]


def is_plain(draft: Draft) -> bool:
    """It is due at once, and has no group, no unique key and no other options."""
    return bool(_terms(draft) == _NO_TERMS)


def found_alike(drafts: Sequence[Draft]) -> Alike | None:
    if type(drafts) is Alike:
        return drafts
    first = drafts[0]
    keys = [draft.idempotency_key for draft in drafts if draft.idempotency_key is not None]
    if not is_plain(first) or len(keys) not in (0, len(drafts)):
        return None
    if list(map(_shape, drafts)).count(_shape(first)) < len(drafts):
        return None
    return Alike(
        first,
        [draft.id for draft in drafts],
        [draft.payload for draft in drafts],
        keys,
        [draft.fingerprint for draft in drafts if draft.fingerprint is not None],
    )


def draft_alike(
    jobs: Sequence[NewJob],
    ids: list[str],
    *,
    queue_of: Callable[[str], str],
    max_payload_bytes: int,
    traceparent: str | UnsetType = UNSET,
) -> Alike | None:
    """None if they are not alike, or if there is something wrong with one of them: then to look at
    them one by one tells which."""
    if len(jobs) < 2:
        return None
    shape = _shape_of_new(jobs[0])
    if shape[3:] != NO_OPTIONS or {type(job.priority) for job in jobs} != {int}:
        return None  # for True is no number, but equals one
    if list(map(_shape_of_new, jobs)).count(shape) < len(jobs):
        return None
    keys = [job.idempotency_key for job in jobs if job.idempotency_key is not None]
    if len(keys) not in (0, len(jobs)):
        return None
    values = [job.payload for job in jobs]
    try:
        first = draft(
            jobs[0],
            ids[0],
            queue_of=queue_of,
            max_payload_bytes=max_payload_bytes,
            traceparent=traceparent,
        )
        check_keys(keys, "idempotency_key")
        texts = payload.encode_all(values, max_bytes=max_payload_bytes)
        fingerprints = payload.fingerprints(first.kind, values) if keys else []
    except InvalidInput:
        return None
    return Alike(first, ids, texts, keys, fingerprints)
