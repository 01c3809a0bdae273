"""Being told instead of asking again and again: one thread per store listens for all who rest.

Topics: `queue:NAME` and, for those who take from every queue, `queue`; `result` for jobs that came
to rest. Whoever is told looks for itself: a word too many does no harm, and a word too few is made
up for by looking from time to time all the same.
"""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event, Lock, Thread, current_thread
from typing import Final, Protocol

from oncely.model.errors import StoreError

ANY_QUEUE: Final = "queue"
RESULT: Final = "result"
Tell = Callable[[str], None]
"""Called in the listening thread, with what is known of what happened: often nothing."""
_LINGER_SECONDS: Final = 1.0
_FIRST_WAIT_SECONDS: Final = 0.1
_WAIT_LIMIT_SECONDS: Final = 5.0
_DEAF_SECONDS: Final = 60.0
_JOIN_SECONDS: Final = 5.0
_MUTE_SECONDS: Final = 0.5
_MUTED_LOOK_SECONDS: Final = 0.05


def queue_topic(queue: str) -> str:
    return f"{ANY_QUEUE}:{queue}"


def ready(files: Iterable[int], seconds: float | None) -> bool:
    """Wait until one of them can be read."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return bool(poll.poll(None if seconds is None else round(max(0.0, seconds) * 1000 + 0.5)))


class Source(Protocol):
    """Where an engine hears of things, for the listening thread alone. After a StoreError nothing
    is held any more. `news_per_second`: more of them than that would cost those who bring them too
    much, and looking from time to time is cheaper."""

    news_per_second: float

    def hold(self, topics: frozenset[str]) -> bool:
        """Hear of these topics, and of no others, from the return on. False: not possible here."""

    def wait(self, seconds: float | None, alarm: int) -> Iterable[tuple[str, str]]:
        """The topics that were heard of, with details; none if the alarm was given first."""

    def drop(self) -> None:
        """Let go of everything, also of the connection."""


class Ear:
    """One who rests from time to time, and is told when there may be something to do."""

    def __init__(
        self, listener: Listener, topics: frozenset[str], tell: Tell, every_seconds: float | None
    ) -> None:
        self._listener = listener
        self.topics = topics
        self.every_seconds = every_seconds
        self._tell = tell
        self.resting = False
        self.covered = False
        self.until = -math.inf
        self.told = -math.inf
        self._muted_until = -math.inf
        self._allowance = 1.0
        self._counted_at = -math.inf

    def rest(self) -> bool:
        """There is nothing to do: tell me. True if that is sure from here on, and nothing was
        missed since the last time. If not, it is told once as soon as it is sure."""
        return self._listener.rest(self)

    def stir(self) -> None:
        """There is something to do. It is told for a moment longer: most rest again soon."""
        self.until = time.monotonic() + _LINGER_SECONDS
        self.resting = False

    def close(self) -> None:
        self._listener.forget(self)

    def count(self, news_per_second: float) -> None:
        """It was told news. After a second's worth of them at once it wants none for a while."""
        now = time.monotonic()
        saved = self._allowance + now - self._counted_at
        self._counted_at = now
        self._allowance = max(0.0, min(1.0, saved) - 1.0 / news_per_second)
        if not self._allowance:
            self._muted_until = now + _MUTE_SECONDS

    def tell(self, detail: str) -> None:
        self.told = time.monotonic()
        with suppress(RuntimeError):  # its event loop, or its threads, are gone
            self._tell(detail)

    def is_wanted(self, now: float) -> bool:
        return (self.resting or self.until > now) and self._muted_until <= now

    def next_seconds(self, now: float) -> list[float]:
        """In how many seconds there is something to be done for it."""
        found = []
        if self.resting and self._muted_until > now:
            found.append(self._muted_until - now)
        if self.covered and not self.resting:
            found.append(self.until - now)
        if self.resting and self.every_seconds is not None:
            found.append(self.told + self._every_seconds(now) - now)
        return found

    def is_overdue(self, now: float) -> bool:
        if not self.resting or self.every_seconds is None:
            return False
        return self.told + self._every_seconds(now) <= now

    def _every_seconds(self, now: float) -> float:
        assert self.every_seconds is not None
        muted = self._muted_until > now
        return min(self.every_seconds, _MUTED_LOOK_SECONDS) if muted else self.every_seconds


class Listener:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = Lock()
        self._ears: set[Ear] = set()
        self._thread: Thread | None = None
        self._alarm = self._bell = -1
        self._closed = False
        self._released: Event | None = None
        self._deaf_until = -math.inf
        self._wait = _FIRST_WAIT_SECONDS

    def ear(self, topics: Iterable[str], tell: Tell, *, every_seconds: float | None = None) -> Ear:
        """`every_seconds`: while it rests it is told at least that often, come what may."""
        ear = Ear(self, frozenset(topics), tell, every_seconds)
        with self._lock:
            self._ears.add(ear)
        return ear

    def rest(self, ear: Ear) -> bool:
        with self._lock:
            if self._closed:
                return False
            ear.resting = True
            if ear.covered:
                return True
            if self._thread is None:
                self._alarm, self._bell = os.pipe()
                for end in (self._alarm, self._bell):
                    os.set_blocking(end, False)
                self._thread = Thread(target=self._listen, name="oncely-listen", daemon=True)
                self._thread.start()
            self._ring()
            return False

    def forget(self, ear: Ear) -> None:
        with self._lock:
            self._ears.discard(ear)
            self._ring()

    def ring(self) -> None:
        """Something happened in this very process: let the thread look at once, if anybody is to
        be told."""
        if any(ear.covered for ear in tuple(self._ears)):
            with self._lock:
                self._ring()

    def _ring(self) -> None:
        if self._bell >= 0:
            with suppress(BlockingIOError):  # full: it will look anyway
                os.write(self._bell, b".")

    def release(self) -> None:
        """Let go of the connection. For those who rest another one is opened a little later."""
        with self._lock:
            if self._thread is None or self._closed:
                return
            released = self._released = Event()
            self._ring()
        released.wait(_JOIN_SECONDS)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._ring()
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _listen(self) -> None:
        while not self._closed:
            heard: Iterable[tuple[str, str]] = ()
            try:
                if self._hold():
                    heard = self._source.wait(self._idle_seconds(), self._alarm)
                else:
                    ready([self._alarm], self._idle_seconds())
            except StoreError:
                self._go_deaf(self._wait)
                self._wait = min(self._wait * 2, _WAIT_LIMIT_SECONDS)
            with suppress(BlockingIOError):
                os.read(self._alarm, 4096)
            self._spread(heard)
            if self._released is not None:
                self._go_deaf(_LINGER_SECONDS)
                self._released.set()
                self._released = None
        self._source.drop()
        with self._lock:
            os.close(self._alarm)
            os.close(self._bell)
            self._bell = -1

    def _hold(self) -> bool:
        """Hear of what somebody rests for, or did a moment ago, and tell those who are new to it.
        False if nothing can be heard for now."""
        now = time.monotonic()
        if now < self._deaf_until:
            return False
        with self._lock:
            wanted = [ear for ear in self._ears if ear.is_wanted(now)]
            for ear in self._ears:
                # Before it is let go of: from now on whoever rests must be told that it is sure.
                ear.covered = ear.covered and ear in wanted
        if not self._source.hold(frozenset[str]().union(*(ear.topics for ear in wanted))):
            self._go_deaf(_DEAF_SECONDS)
            return False
        self._wait = _FIRST_WAIT_SECONDS
        for ear in wanted:
            if not ear.covered:
                ear.covered = True
                ear.tell("")
        return True

    def _go_deaf(self, seconds: float) -> None:
        self._deaf_until = time.monotonic() + seconds
        with self._lock:
            for ear in self._ears:
                ear.covered = False
        self._source.drop()

    def _idle_seconds(self) -> float | None:
        """So long there is nothing to be done by ourselves."""
        now = time.monotonic()
        waits = [self._deaf_until - now] if self._deaf_until > now else []
        with self._lock:
            for ear in self._ears:
                waits += ear.next_seconds(now)
        return max(0.0, min(waits)) if waits else None

    def _spread(self, heard: Iterable[tuple[str, str]]) -> None:
        with self._lock:
            ears = tuple(self._ears)
        for topic, detail in heard:
            for ear in ears:
                if topic in ear.topics or (
                    topic.startswith(f"{ANY_QUEUE}:") and ANY_QUEUE in ear.topics
                ):
                    ear.tell(detail)
                    ear.count(self._source.news_per_second)
        for ear in ears:
            if ear.is_overdue(time.monotonic()):
                ear.tell("")
