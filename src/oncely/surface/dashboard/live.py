"""Live parts of pages: one stream per viewer, one question to the store for all of them."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from oncely.surface.dashboard.render import render

if TYPE_CHECKING:
    from oncely.surface.dashboard.site import Site

_LIFE_SECONDS: Final = 20.0
"""Then the browser connects anew: a server that is told to stop is not kept waiting for long, and
somebody who has been signed out sees nothing more."""


class Topic(msgspec.Struct, frozen=True):
    """A part of a page that is sent again and again: `template`, rendered from `read`. It must not
    depend on who looks."""

    name: str
    template: str
    read: Callable[[Site], Awaitable[Mapping[str, Any]]]
    every_seconds: float = 2.0


class Live:
    def __init__(
        self, site: Site, topics: Sequence[Topic], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._site = site
        self._now = now
        self._topics = {topic.name: topic for topic in topics}
        self._locks = {topic.name: asyncio.Lock() for topic in topics}
        self._read: dict[tuple[str, str], tuple[float, str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    async def part(self, name: str, root: str) -> str:
        """The part as it is, or as it was a moment ago: however many look, the store is asked once
        in `every_seconds`."""
        topic = self._topics[name]
        async with self._locks[name]:
            at, text = self._read.get((name, root), (-math.inf, ""))
            if self._now() - at >= topic.every_seconds:
                data = await topic.read(self._site)
                shown = {**data, **self._site.names(root)}
                text = await asyncio.to_thread(render, topic.template, shown)
                self._read[name, root] = (self._now(), text)
            return text

    async def stream(self, names: Sequence[str], root: str) -> AsyncIterator[bytes]:
        """Server-sent events, each with a part that has changed."""
        ends = time.monotonic() + _LIFE_SECONDS
        sent: dict[str, str] = {}
        stopping = self._site.service.stopping
        yield b"retry: 1000\n\n"
        while time.monotonic() < ends and not stopping.is_set():
            for name in names:
                text = await self.part(name, root)
                if sent.get(name) != text:
                    sent[name] = text
                    lines = "".join(f"data: {line}\n" for line in text.splitlines())
                    yield f"event: {name}\n{lines}\n".encode()
            yield b": here\n\n"
            pause = min((self._topics[name].every_seconds for name in names), default=2.0)
            try:
                await asyncio.wait_for(stopping.wait(), pause)
            except TimeoutError:
                pass
