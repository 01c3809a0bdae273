"""What Prometheus reads: the counters of the store, and how its queues stand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from oncely.model.counter import SECOND_LABEL, Counter
from oncely.model.flow import Queue
from oncely.store import limits
from oncely.surface.http.service import Service

_HELP: Final[dict[str, str]] = {
    "enqueued": "Jobs that were stored",
    "executions": "Executions that ended",
    "deduplicated": "Repeats that were recognised",
    "key_conflicts": "Keys that came back with other content",
    "effects": "Effects that were recorded",
    "effect_renamed": "Effects on record that a later execution did not ask for",
    "held": "Jobs that were held in doubt",
    "resolved": "Effects in doubt that somebody decided",
    "drills": "Completed jobs that were delivered once more",
    "drill_effects": "What drills met: recognised, or it would have been repeated",
}


class _Reading:
    """A collector over what was read already."""

    def __init__(
        self,
        counters: list[Counter],
        queues: list[Queue],
        ages: dict[str, float],
        resting: dict[str, int],
    ) -> None:
        self._counters: dict[str, list[Counter]] = {}
        for each in counters:
            self._counters.setdefault(each.name, []).append(each)
        self._queues = queues
        self._ages = ages
        self._resting = resting

    def collect(self) -> Iterator[Metric]:
        for name, second in SECOND_LABEL.items():
            labels = ["kind"] if second is None else [second, "kind"]
            family = CounterMetricFamily(f"oncely_{name}", _HELP[name], labels=labels)
            for counter in self._counters.get(f"oncely_{name}_total", ()):
                family.add_metric([counter.labels[label] for label in labels], counter.value)
            yield family
        yield self._gauge(
            "oncely_queue_waiting",
            "Jobs that wait, due or not; counted up to 10,001",
            ((each.name, each.waiting) for each in self._queues),
        )
        yield self._gauge(
            "oncely_queue_running",
            "Jobs that run",
            ((each.name, each.running) for each in self._queues),
        )
        yield self._gauge(
            "oncely_queue_paused",
            "1 if the queue is paused",
            ((each.name, int(each.paused)) for each in self._queues),
        )

        yield self._gauge(
            "oncely_queue_oldest_seconds",
            "For how long the oldest job that waits has been due",
            self._ages.items(),
        )
        yield self._gauge(
            "oncely_jobs",
            "Jobs that rest in a state; counted up to 10,001",
            self._resting.items(),
            label="state",
        )

    def _gauge(
        self, name: str, text: str, values: Iterable[tuple[str, float]], *, label: str = "queue"
    ) -> Metric:
        family = GaugeMetricFamily(name, text, labels=[label])
        for labelled, value in values:
            family.add_metric([labelled], value)
        return family


async def exposition(service: Service) -> bytes:
    reading = _Reading(
        await service.app.acounters(),
        await service.app.aqueues(),
        await service.ask(lambda _: limits.ages()),
        await service.ask(lambda _: limits.resting()),
    )
    # A store may have many kinds and queues: the server answers others meanwhile.
    return await asyncio.to_thread(_text, reading)


def _text(reading: _Reading) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(reading)
    return generate_latest(registry)
