"""Plans of the traffic: what was counted and how long it took, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from oncely.model.counter import KINDS_LIMIT, OTHER_KINDS, Name
from oncely.model.traffic import KEEP_SECONDS, STEPS, Counted, Last, Measure, Taken, Traffic, merged
from oncely.store.counters import BOUND
from oncely.store.look import moment
from oncely.store.plan import Plan, Statement, document

_BUCKETS: Final = msgspec.json.Decoder(dict[int, int])


class Sample(msgspec.Struct, frozen=True):
    """How long executions took that have ended lately. The field names are those of the document
    that the store's statement unpacks."""

    measure: Measure
    queue: str
    kind: str
    buckets: dict[int, int]


def add(samples: Sequence[Sample]) -> Plan[None]:
    """In a transaction. Those of one place are added up first: one statement of PostgreSQL changes
    a row once."""
    taken = [each for each in samples if each.buckets]
    if not taken:
        return
    kinds = sorted({each.kind for each in taken})
    named = {kind for (kind,) in (yield document("counted_kinds", kinds, kinds_limit=KINDS_LIMIT))}
    found: dict[tuple[Measure, str, str], Counter[int]] = {}
    for each in taken:
        kind = each.kind if each.kind in named else OTHER_KINDS
        found.setdefault((each.measure, each.queue, kind), Counter()).update(each.buckets)
    yield document("latency_add", [Sample(*place, took) for place, took in found.items()])


def traffic(last: Last) -> Plan[Traffic]:
    seconds, steps = STEPS[last]
    [(since,)] = yield Statement("traffic_since", {"seconds": seconds, "steps": steps})
    span = {"seconds": seconds, "since": since}
    other = {"other": OTHER_KINDS}
    counted: dict[tuple[Name, str, str], Counted] = {}
    for at, name, kind, label, n in (yield Statement("traffic", {**span, **BOUND})):
        one = counted.get((name, kind, label))
        if one is None:
            one = counted[name, kind, label] = Counted(name, kind, label, [0] * steps)
        # The clock of a caller may be ahead of the step that is under way.
        one.values[min((at - since) // seconds, steps - 1)] += n
    taken: dict[tuple[Measure, str, str], Taken] = {}
    for at, measure, queue, kind, found in (yield Statement("latency", {**span, **other})):
        took = taken.setdefault((measure, queue, kind), Taken(measure, queue, kind, {})).steps
        step = min((at - since) // seconds, steps - 1)
        took[step] = merged([took.get(step, {}), _BUCKETS.decode(found)])
    return Traffic(
        since=moment(since * 1_000_000),
        seconds=seconds,
        steps=steps,
        counted=[counted[place] for place in sorted(counted)],
        taken=[taken[place] for place in sorted(taken)],
    )


def prune() -> Plan[None]:
    for seconds, keep_seconds in KEEP_SECONDS.items():
        yield Statement("prune_traffic", {"seconds": seconds, "keep_seconds": keep_seconds})
