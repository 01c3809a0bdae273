"""`oncely demo`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from shlex import quote as shell_quote
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote

from rich.console import Console

from oncely.surface.cli.demo import crew
from oncely.surface.cli.demo.book import read
from oncely.surface.cli.demo.moral import moral
from oncely.surface.cli.demo.place import Place
from oncely.surface.cli.demo.publishing import PUBLISHERS
from oncely.surface.cli.demo.record import DemoFailed, Watcher
from oncely.surface.cli.demo.screen import Bars, Lines, Silence, bars, table
from oncely.surface.cli.demo.tally import Tally, faults, tally
from oncely.surface.cli.demo.working import STRIKES, WORKERS
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import masked, opened
from oncely.surface.cli.say import answer, screen
from oncely.surface.looking import LIST_LIMIT

ORDERS: Final = range(1, 201)
TIMES: Final = 5


def demo(*, options: Options = DEFAULTS) -> None:
    """Publish, charge and mail orders, by processes that race, repeat and die.

    Without --url it runs in a temporary SQLite file, whatever $ONCELY_URL
    says. With --url it leaves its jobs in that store, in a queue of its own.
    It ends with an error if a charge or a mail was lost or doubled.

        $ oncely demo
        $ oncely demo --url postgresql://app@localhost/test
    """
    out = screen()
    # Each run has its own queue, so that the demo can be repeated on one store.
    queue = f"demo-{token_hex(3)}"
    with TemporaryDirectory(prefix="oncely-demo-") as folder:
        if not options.json:
            out.print(_announcement(options))
        result, wrong = _run(_store(options, folder), queue, Path(folder, "payments.db"), out)
    if options.json:
        answer(result)
    else:
        out.print(table(result))
    if wrong:
        raise DemoFailed(f"the counts do not add up: {'; '.join(wrong)}")
    if not options.json:
        out.print(moral(result))
        out.print(_next(options, queue))


def _store(options: Options, folder: str) -> Options:
    if options.url is not None:
        return options
    return replace(options, url=f"sqlite:///{quote(folder)}/demo.db")


def _run(store: Options, queue: str, book: Path, out: Console) -> tuple[Tally, list[str]]:
    """The counts, and what is wrong with them."""
    with opened(store, create=True) as app:
        app.migrate()
        place = Place(app.url, store.schema, queue)
        with _watcher(store, out) as watcher:
            record = asyncio.run(crew.run(app, place, book, ORDERS, times=TIMES, watcher=watcher))
        jobs = app.jobs(queue=queue, limit=LIST_LIMIT)
    pages = read(book)
    result = tally(ORDERS, jobs, pages, record)
    return result, faults(result, jobs, pages, record, ORDERS, times=TIMES)


@contextmanager
def _watcher(store: Options, out: Console) -> Iterator[Watcher]:
    if store.json:
        yield Silence()
    elif out.is_terminal:
        with bars(out) as progress:
            yield Bars(progress, orders=len(ORDERS), times=TIMES)
    else:
        yield Lines(out)


def _announcement(options: Options) -> str:
    store = "a temporary SQLite file" if options.url is None else masked(options.url)
    return (
        f"{len(ORDERS)} orders, each published {TIMES} times by {PUBLISHERS} processes at once.\n"
        f"{WORKERS} workers charge them and mail receipts, by a payment service that keeps its "
        "own book.\n"
        f"Killed with SIGKILL: a publisher, and {len(STRIKES)} workers between intent, effect, "
        f"outcome.\nThe store: {store}\n"
    )


def _next(options: Options, queue: str) -> str:
    if options.url is None:
        return (
            "\nThat store is gone. To look around in one that stays:\n"
            "  oncely demo --url sqlite:///demo.db\n"
            "  oncely jobs --url sqlite:///demo.db --limit 5"
        )
    schema = "" if options.schema == DEFAULTS.schema else f" --schema {options.schema}"
    look = f"oncely jobs --queue {queue} --url {shell_quote(masked(options.url))}{schema}"
    return f"\nTo look at the jobs:\n  {look}"
