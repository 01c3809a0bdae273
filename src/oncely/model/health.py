"""The health of keys: which kinds recognise repeats, and whose keys cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from oncely.model.counter import OTHER_KINDS, Counter
from oncely.model.keys import suspicion

Verdict = Literal["recognises", "no_repeat_yet", "looks_random", "too_coarse", "no_keys"]
ADVICE: Final[dict[Verdict, str]] = {
    "recognises": "its keys recognise repeats",
    "no_repeat_yet": "no repeat so far; nothing is wrong with its keys",
    "looks_random": "its keys change with every call, so no repeat is ever recognised: name the "
    "operation, such as key('order', order_id, 'charge')",
    "too_coarse": "its keys come back with other payloads, which is refused: put into the key all "
    "that makes two operations different",
    "no_keys": "it has no keys: an enqueue that is repeated makes a second job",
}

_COUNTED: Final = (
    "oncely_enqueued_total",
    "oncely_deduplicated_total",
    "oncely_key_conflicts_total",
)


class Sample(msgspec.Struct, frozen=True):
    """The keys of one of the newest jobs."""

    kind: str
    idempotency_key: str | None
    unique_key: str | None
    created_at: datetime


class KeyHealth(msgspec.Struct, frozen=True):
    """Of the jobs of one kind. `enqueued`, `deduplicated` (at enqueue) and `conflicts` are counted
    since the store was made; of its newest jobs `sampled` were looked at, of which `keyed` had a
    key and `suspicious` had one that looks random or like a clock, such as `example`."""

    kind: str
    verdict: Verdict
    advice: str
    enqueued: int
    deduplicated: int
    conflicts: int
    sampled: int
    keyed: int
    suspicious: int
    example: str | None


def examine(counters: Iterable[Counter], samples: Sequence[Sample]) -> list[KeyHealth]:
    """The kinds with something wrong come first."""
    totals: dict[tuple[str, str], int] = {}
    for counter in counters:
        if counter.labels.get("boundary", "enqueue") == "enqueue":
            totals[counter.name, counter.labels["kind"]] = counter.value
    by_kind: dict[str, list[Sample]] = {kind: [] for name, kind in totals if name in _COUNTED}
    for sample in samples:
        kind = sample.kind
        if kind not in by_kind and OTHER_KINDS in by_kind:
            kind = OTHER_KINDS
        by_kind.setdefault(kind, []).append(sample)
    found = [
        _examine(kind, tuple(totals.get((name, kind), 0) for name in _COUNTED), by_kind[kind])
        for kind in sorted(by_kind)
    ]
    order: tuple[Verdict, ...] = ("too_coarse", "looks_random", "no_keys")
    return sorted(found, key=lambda each: order.index(each.verdict) if each.verdict in order else 9)


def _examine(kind: str, counted: tuple[int, ...], samples: list[Sample]) -> KeyHealth:
    enqueued, deduplicated, conflicts = counted
    keyed = [sample for sample in samples if sample.idempotency_key or sample.unique_key]
    strange = [key for sample in keyed if (key := _strange(sample)) is not None]
    verdict: Verdict
    if conflicts:
        verdict = "too_coarse"
    elif deduplicated:
        verdict = "recognises"
    elif strange and 2 * len(strange) >= len(keyed):
        verdict = "looks_random"
    elif samples and not keyed:
        verdict = "no_keys"
    else:
        verdict = "no_repeat_yet"
    return KeyHealth(
        kind=kind,
        verdict=verdict,
        advice=ADVICE[verdict],
        enqueued=enqueued,
        deduplicated=deduplicated,
        conflicts=conflicts,
        sampled=len(samples),
        keyed=len(keyed),
        suspicious=len(strange),
        example=strange[0] if strange else None,
    )


def _strange(sample: Sample) -> str | None:
    """A key that a repeat would hardly come with, if no other key of the job recognises one."""
    keys = [key for key in (sample.idempotency_key, sample.unique_key) if key is not None]
    moment = sample.created_at.timestamp()
    return keys[0] if all(suspicion(key, moment) for key in keys) else None
