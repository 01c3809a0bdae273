"""The store's own operations: claim, settle, the ledger, children. Each is one transaction, so a
crash inside it is the same as one before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.watch import Watch
from oncely.store.effects import Effect
from oncely.store.ledger.plans import Intent
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.sqlite import engine as sqlite_engine
from oncely.store.sqlite.engine import SqliteEngine
from oncely.surface.base import _carried

_ASIDE: Final = {"survey", "reclaim", "next_expiry", "renew", "check", "migrate", "fold", "prune"}
"""What a worker does for all, at moments of its own."""
_ASIDE_ROOMS: Final = {"oncely.store.workers", "oncely.store.traffic", "oncely.store.counters"}
"""Plans that only tell of workers: nothing of a job hangs on them."""
_WORDS: Final = {
    "begin": "write the intent of {}",
    "take": "write the entry {}",
    "keep": "keep the entry {}",
    "retake": "take over {}",
    "done": "record that {} is done",
    "clear": "forget the intent of {}",
    "leave": "let go of {}",
}


def install(watch: Watch, copies: Copies) -> None:
    for engine in (SqliteEngine, PostgresEngine):
        _watch(watch, engine)
    watch.standing_still = _standing_still
    same, create = sqlite_engine._is_same, sqlite_engine._create_private

    def is_same(file: str, path: Path | None) -> bool:
        return same(file, None if path is None else Path(copies.file(str(path))))

    sqlite_engine._is_same = is_same
    sqlite_engine._create_private = lambda path: create(Path(copies.file(str(path))))


@contextmanager
def _standing_still() -> Iterator[None]:
    """A thread that was stopped while it holds the lock of a file would keep out everybody."""
    with ExitStack() as held:
        for each in list(_carried):
            if isinstance(each._engine, SqliteEngine):
                for lock in each._engine._locks():
                    held.enter_context(lock)
        yield


def _watch(watch: Watch, engine: Any) -> None:
    real = engine.run

    def run(self: Any, make: Any, access: Any) -> Any:
        if access != "read":
            # A plan does nothing before it is run. Inside, the write lock would be held already.
            plan = make(False)
            room = plan.gi_frame.f_globals["__name__"]
            if plan.__name__ not in _ASIDE and room not in _ASIDE_ROOMS:
                watch.pass_by("store", _told(plan.__name__, plan.gi_frame.f_locals))
            plan.close()
        return real(self, make, access)

    engine.run = run


def _told(name: str, arguments: dict[str, Any]) -> str:
    if name == "settle":
        return name
    if name == "swap":
        return "settle" if arguments.get("leases") else "claim"
    if name == "exchange":
        return "settle" if arguments.get("done") else "claim"
    word = _WORDS.get(name.removesuffix("_all"))
    named = [f"{each.verb} {each.name!r}" for each in _effects(arguments.values())]
    if word is not None and named:
        return word.format(", ".join(named))
    return f"store: {name}"


def _effects(values: Iterable[Any]) -> Iterator[Any]:
    """Those that a plan is about: one, or several, or what is known of them."""
    for value in values:
        if isinstance(value, Effect | Intent):
            yield value
        elif isinstance(value, list | tuple):
            yield from _effects(value)
        elif (inner := getattr(value, "effect", None)) is not None:
            yield from _effects([inner])
