"""`oncely workers`: the workers that were heard of."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from oncely.model.worker import Worker
from oncely.surface.cli.moments import when
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible


def workers(*, options: Options = DEFAULTS) -> None:
    """List the workers that are there, and those that died in the last hour.

    A worker says every few seconds that it is there. One that is told to stop
    is gone at once; one that was silent for half a minute is taken for dead.

        $ oncely workers
        $ oncely workers --json
    """
    with opened(options) as app:
        found = app.workers()
    if options.json:
        answer(found)
        return
    out = screen()
    for worker in found:
        out.print(visible(worker.name), style="bold" if worker.alive else "bold red")
        for line in _lines(worker):
            out.print(f"    {visible(line)}")
    if not found:
        out.print("no workers were heard of in the last hour; `oncely worker` starts one")


def _lines(worker: Worker) -> Iterator[str]:
    now = datetime.now(UTC)
    queues = "all queues" if worker.queues is None else ", ".join(worker.queues)
    verb = "pushes" if worker.pushes else "takes from"
    room = "" if worker.concurrency is None else f" of {worker.concurrency}"
    yield f"runs {worker.running}{room}, {verb} {queues}"
    if worker.pid is not None:
        yield f"process {worker.pid} on {worker.host}, oncely {worker.version}"
    yield f"started {when(worker.started_at, now)}"
    if not worker.alive:
        yield f"silent since {when(worker.seen_at, now)}: it died, or cannot reach the store"
