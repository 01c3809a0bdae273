"""What the demo shows while it runs, and at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from oncely.surface.cli.demo.publisher import Answer
from oncely.surface.cli.demo.tally import Tally


class Silence:
    """For `--json`."""

    def started(self, name: str, publishes: int) -> None: ...

    def answered(self, name: str, answers: Sequence[Answer]) -> None: ...

    def killed(self, name: str) -> None: ...


class Lines:
    """One line for each publisher, when it ends."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}

    def started(self, name: str, publishes: int) -> None:
        self._done[name], self._total[name] = 0, publishes

    def answered(self, name: str, answers: Sequence[Answer]) -> None:
        self._done[name] += len(answers)
        if self._done[name] == self._total[name]:
            self._out.print(f"{name}: {self._done[name]} publishes, all answered")

    def killed(self, name: str) -> None:
        self._out.print(f"{name}: killed after {self._done[name]} of {self._total[name]} publishes")


class Bars:
    """A bar for each publisher, and one for the orders that have a job."""

    def __init__(self, progress: Progress, orders: int) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}
        self._served: set[str] = set()
        self._orders = progress.add_task("orders with a job", total=orders, note="")

    def started(self, name: str, publishes: int) -> None:
        self._bars[name] = self._progress.add_task(name, total=publishes, note="")

    def answered(self, name: str, answers: Sequence[Answer]) -> None:
        self._progress.advance(self._bars[name], len(answers))
        self._served.update(answer.order for answer in answers)
        self._progress.update(self._orders, completed=len(self._served))

    def killed(self, name: str) -> None:
        self._progress.update(self._bars[name], note="[red]killed[/]")


def bars(out: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(24, complete_style="cyan", finished_style="green"),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        console=out,
    )


def table(tally: Tally) -> Table:
    rows = {
        "orders": tally.orders,
        f"publishes, by {tally.publishers} processes": tally.publishes,
        "jobs inserted": tally.inserted,
        "deduplicated": tally.deduplicated,
        "lost": tally.lost,
        "doubled": tally.doubled,
    }
    made = Table(show_header=False)
    made.add_column()
    made.add_column(justify="right")
    for label, count in rows.items():
        bad = label in ("lost", "doubled") and count
        made.add_row(label, f"{count:,}", style="bold red" if bad else "")
    return made
