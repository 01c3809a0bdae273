"""What one job costs the database, counted in a pass of its own: counting takes time."""

from __future__ import annotations

import msgspec

from oncely.store.measure import IndexEntries, kept_log, log_bytes, measure
from oncely.surface.cli.bench.ground import Ground, Store
from oncely.surface.cli.bench.measures import Measure, Size
from oncely.surface.cli.bench.tap import tapped


class Cost(msgspec.Struct, frozen=True):
    """For each job."""

    round_trips: float | None
    """None on SQLite, which is in the same process."""
    wal_bytes: float
    index_entries: float
    disk_bytes: float


def cost(ground: Ground, wanted: Measure, size: Size) -> Cost:
    with ground.store() as store:
        if store.path is None:
            return _on_postgres(store, wanted, size)
        with store.opened() as app:
            wanted.prepare(app, size.jobs)
        entries = IndexEntries(store.path)
        with store.opened() as app:
            before = entries.read()
            wanted.run(app, size)
        written = entries.read() - before
    with ground.store() as store:
        return _on_sqlite(store, wanted, size, written)


def _on_sqlite(store: Store, wanted: Measure, size: Size, entries: int) -> Cost:
    assert store.path is not None
    with store.opened() as app:
        wanted.prepare(app, size.jobs)
        before = app._engine.run(lambda _: measure(), "read")
        with kept_log(store.path):
            log_before = log_bytes(store.path)
            wanted.run(app, size)
            logged = log_bytes(store.path) - log_before
        after = app._engine.run(lambda _: measure(), "read")
    return Cost(
        round_trips=None,
        wal_bytes=logged / size.jobs,
        index_entries=entries / size.jobs,
        disk_bytes=(after.disk_bytes - before.disk_bytes) / size.jobs,
    )


def _on_postgres(store: Store, wanted: Measure, size: Size) -> Cost:
    with tapped(store.url) as tap, store.opened() as meter:
        with store.opened(tap.url) as app:
            wanted.prepare(app, size.jobs)
        # A session of PostgreSQL adds up what it counted when it ends.
        tap.wait_for_sessions()
        before = meter._engine.run(lambda _: measure(), "read")
        with store.opened(tap.url) as app:
            app.queues()  # a connection is made, and the schema checked
            asked = tap.round_trips
            wanted.run(app, size)
            asked = tap.round_trips - asked
        tap.wait_for_sessions()
        after = meter._engine.run(lambda _: measure(), "read")
    assert after.wal_bytes is not None
    assert before.wal_bytes is not None
    return Cost(
        round_trips=asked / size.jobs,
        wal_bytes=(after.wal_bytes - before.wal_bytes) / size.jobs,
        index_entries=((after.index_entries or 0) - (before.index_entries or 0)) / size.jobs,
        disk_bytes=(after.disk_bytes - before.disk_bytes) / size.jobs,
    )
