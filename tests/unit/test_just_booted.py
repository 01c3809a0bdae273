"""On a machine that has just booted the monotonic clock is near zero: what never happened must not
look recent."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncely.store.listen import RESULT, Listener
from oncely.surface.dashboard import live
from oncely.surface.dashboard.live import Live, Topic
from oncely.surface.dashboard.site import Site

EVERY_SECONDS = 2.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.anyio
async def test_a_live_part_is_read_before_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0

    async def read(_: Site) -> Mapping[str, Any]:
        nonlocal reads
        reads += 1
        return {"n": reads}

    monkeypatch.setattr(live, "render", lambda _, data: f"read {data['n']}")
    clock = Clock()
    site = cast(Site, SimpleNamespace(names=lambda root: {}))
    parts = Live(site, [Topic("t", "t.html", read, EVERY_SECONDS)], clock)

    async def part_at(now: float) -> str:
        clock.now = now
        return await parts.part("t", "")

    assert await part_at(0.0) == "read 1"
    assert await part_at(EVERY_SECONDS / 2) == "read 1"
    assert await part_at(EVERY_SECONDS) == "read 2"


class Silence:
    """A source that nothing can be heard of."""

    news_per_second = 1.0

    def hold(self, topics: frozenset[str]) -> bool:
        return False

    def wait(self, seconds: float | None, alarm: int) -> Iterable[tuple[str, str]]:
        return ()

    def drop(self) -> None: ...


def test_who_rests_and_was_never_told_is_told_at_once() -> None:
    ear = Listener(Silence()).ear([RESULT], lambda _: None, every_seconds=EVERY_SECONDS)
    ear.resting = True
    assert ear.is_overdue(0.0)
    assert ear.next_seconds(0.0)[0] <= 0
