"""What `oncely prove` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from oncely.model.errors import InvalidInput
from oncely.prove.explore import prove
from oncely.prove.page import page
from oncely.prove.paint import painted
from oncely.prove.report import Report
from oncely.prove.world import Table, WorldItem
from oncely.surface.app import Oncely
from oncely.surface.cli.say import answer, screen
from oncely.surface.cli.worker import load


def run(
    place: str,
    kind: str,
    *,
    payload: str | None,
    tables: Sequence[str],
    world: str | None,
    html: Path | None,
    url: str | None,
    as_json: bool,
    **how: Any,
) -> int:
    """`how` goes to `prove` as it is."""
    if url is not None:
        os.environ["ONCELY_URL"] = url
    app = load(place)
    found = [*(_table(app, name) for name in tables), *_world(world)]
    quiet = as_json or how["schedule"] is not None or not sys.stderr.isatty()
    report = _prove(app, kind, _payload(payload), quiet=quiet, world=found, **how)
    if html is not None:
        html.write_text(page(report), "utf-8")
    if as_json:
        answer(report.as_dict())
    else:
        screen().print(painted(report))
    return 0 if report.ok else 1


def _prove(app: Oncely, kind: str, payload: Any, *, quiet: bool, **options: Any) -> Report:
    if quiet:
        return prove(app, kind, payload, **options)
    columns = (TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, auto_refresh=False
    ) as bar:
        task = bar.add_task("schedules", total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            # By hand: a thread that draws would be lost in every fork.
            bar.refresh()

        return prove(app, kind, payload, progress=show, **options)


def _payload(text: str | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"--payload is not JSON: {error}") from None


def _table(app: Oncely, name: str) -> Table:
    url, mark, table = name.rpartition("#")
    return Table(url if mark else app.url, table)


def _world(place: str | None) -> list[WorldItem]:
    if place is None:
        return []
    module, _, name = place.partition(":")
    if not module or not name:
        raise InvalidInput(f"--world is {place!r}; expected MODULE:NAME, such as shop.proof:world")
    try:
        found = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise InvalidInput(f"there is no module {error.name!r} here") from None
    except AttributeError:
        raise InvalidInput(f"module {module!r} has no {name!r}") from None
    if callable(found):
        found = found()
    return list(found)
