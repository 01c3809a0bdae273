"""`oncely torture`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from oncely.model.errors import InvalidInput
from oncely.surface.app import Oncely
from oncely.surface.cli.bench.ground import ground
from oncely.surface.cli.demo.book import read
from oncely.surface.cli.demo.place import Place
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.say import answer, screen
from oncely.surface.cli.torture.check import Verdict, check
from oncely.surface.cli.torture.crew import Crew, Ordeal, TortureFailed
from oncely.surface.cli.torture.worker import paid
from oncely.surface.looking import LIST_LIMIT

QUEUE: Final = "torture"
_LINE_SECONDS: Final = 5.0
_MOST_SECONDS: Final = 3_600.0

Look = Callable[[Ordeal], None]


def torture(
    *,
    seconds: Annotated[
        float, Parameter(metavar="S", help="So long processes are killed and stopped.")
    ] = 30.0,
    workers: Annotated[int, Parameter(metavar="N", help="So many worker processes at once.")] = 4,
    options: Options = DEFAULTS,
) -> None:
    """Kill, stop and continue workers and publishers, then check what is left.

    It works in a store of its own and removes it: on PostgreSQL in a schema
    beside yours, on SQLite in a file beside yours; without a store, in a
    temporary folder. It ends with an error if a job or an effect was lost or
    doubled, or a late end was accepted.

        $ oncely torture
        $ oncely torture --seconds 300 --url postgresql://app@localhost/test
    """
    if not 1 <= seconds <= _MOST_SECONDS:
        raise InvalidInput(f"--seconds is {seconds:g}; expected a number from 1 to 3,600")
    if not 1 <= workers <= 64:
        raise InvalidInput(f"--workers is {workers}; expected a number from 1 to 64")
    out = screen()
    with ground(options, "torture") as place, place.store() as store, store.opened() as app:
        app.migrate()
        if not options.json:
            out.print(f"{place.shown}; {workers} workers, {seconds:g} seconds of faults\n")
        with _watcher(options, out, seconds) as look:
            verdict = _run(app, store.schema, place.shown, seconds, workers, look)
    if options.json:
        answer(verdict)
    else:
        out.print(_table(verdict))
    if verdict.violations:
        raise TortureFailed(f"violated: {'; '.join(verdict.violations)}")
    if not options.json:
        struck = verdict.workers_killed + verdict.workers_stopped + verdict.publishers_killed
        out.print(
            f"\nNothing was lost or doubled in {verdict.jobs} jobs under {struck} faults. "
            f"By that, fewer than 1 in {max(1, verdict.jobs // 3)} jobs would be (95% sure); "
            "another run tries other moments."
        )


def _run(app: Oncely, schema: str, shown: str, seconds: float, workers: int, look: Look) -> Verdict:
    place = Place(app.url, schema, QUEUE)
    begun = time.monotonic()
    with TemporaryDirectory(prefix="oncely-torture-") as folder:
        book = Path(folder, "payments.db")
        with app._engine.transactions.sync() as tx:
            tx.execute(f"create table {paid(place)} (order_id integer)")
        crew = Crew(app, place, book, seconds=seconds, workers=workers)
        ordeal = asyncio.run(crew.run(look))
        with app._engine.transactions.sync() as tx:
            rows = tx.execute(f"select order_id from {paid(place)}").fetchall()
        return check(
            crew.orders,
            app.jobs(queue=QUEUE, limit=LIST_LIMIT),
            read(book),
            [order for (order,) in rows],
            app.counters(),
            ordeal,
            store=shown,
            seconds=time.monotonic() - begun,
        )


@contextmanager
def _watcher(options: Options, out: Console, seconds: float) -> Iterator[Look]:
    if options.json:
        yield lambda _: None
    elif out.is_terminal:
        columns = (TextColumn("faults"), BarColumn(20), TextColumn("{task.description}"))
        with Progress(*columns, console=out) as bar:
            task = bar.add_task("", total=seconds)
            begun = time.monotonic()
            yield lambda now: bar.update(
                task, completed=time.monotonic() - begun, description=_told(now)
            )
    else:
        shown = time.monotonic()

        def look(now: Ordeal) -> None:
            nonlocal shown
            if time.monotonic() - shown > _LINE_SECONDS:
                shown = time.monotonic()
                out.print(_told(now))

        yield look


def _told(now: Ordeal) -> str:
    record = now.record
    return (
        f"{now.ended} jobs ended, {now.killed} workers killed, {now.stopped} "
        f"stopped, {len(record.publishers_killed)} publishers killed"
    )


def _table(verdict: Verdict) -> Table:
    sections: tuple[dict[str, int], ...] = (
        {
            f"publishes acknowledged, by {verdict.publishers} processes": verdict.acknowledged,
            "publishers killed": verdict.publishers_killed,
            "jobs": verdict.jobs,
            "deduplicated": verdict.deduplicated,
        },
        {
            f"executions, by {verdict.workers} workers": verdict.executions,
            "workers killed": verdict.workers_killed,
            "workers stopped past their lease, and continued": verdict.workers_stopped,
            "jobs recovered": verdict.recovered,
            "late ends refused": verdict.late_ends_refused,
            "effects found done, not done again": verdict.effects_recognised,
            "held in doubt": verdict.held,
            "resolved": verdict.resolved,
            "replayed, after three crashes in a row": verdict.replayed,
            "completed, once each": verdict.completed,
        },
        {
            "charges": verdict.charges,
            "mails": verdict.mails,
            "paid in the store's own database": verdict.paid_in_store,
            "lost": verdict.lost,
            "doubled": verdict.doubled,
            "violations": len(verdict.violations),
        },
    )
    made = Table(show_header=False)
    made.add_column()
    made.add_column(justify="right")
    for rows in sections:
        for label, number in rows.items():
            bad = label in ("lost", "doubled", "violations") and number
            made.add_row(label, f"{number:,}", style="bold red" if bad else "")
        made.add_section()
    return made
