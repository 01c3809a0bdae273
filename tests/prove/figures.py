"""The figures of the guide to proofs: `python -m tests.prove.figures` prints them, and with
`--write` they take the place of those in docs/guide/prove.md."""

import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncely.prove import Report
from tests.cluster import Cluster, free_port
from tests.crash.original_scenes import RECIPES
from tests.engine.ledger_places import serve
from tests.prove.exhibits import Exhibit
from tests.prove.test_sound import DECLARED, SOUND, Shop

GUIDE = Path(__file__).parents[2] / "docs/guide/prove.md"
BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)
VERBS = {
    "transaction": "`ctx.transaction()`",
    "atransaction": "`async with ctx.transaction()`",
    "in_own_transaction": "`ledger.transaction(key, tx=…)`",
    "with_child": "`ctx.enqueue(…, tx=tx)`",
    "step": "`ctx.step` with a key",
    "astep": "`await ctx.step` with a key",
    "verified": "`ctx.fence` with `verify`",
    "held": "`ctx.fence`",
}


class Clock:
    """The time that proofs took, theirs and that of their children."""

    def __init__(self) -> None:
        self.schedules = 0
        self.seconds = 0.0
        self._began = _cpu_seconds()

    def add(self, report: Report) -> Report:
        self.schedules += report.schedules
        self.seconds += report.seconds
        return report

    def __str__(self) -> str:
        rate = self.schedules / self.seconds
        each = (_cpu_seconds() - self._began) / self.schedules * 1000
        return (
            f"{self.schedules} schedules in {self.seconds:.0f} seconds, {rate:.0f} a second, "
            f"{each:.0f} ms of CPU each"
        )


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@contextmanager
def redis_or_rows(folder: Path) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        yield str(folder / "rows.db")
        return
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    for _ in serve([program, *options], port, str(folder)):
        yield f"redis://127.0.0.1:{port}/0"


def told(name: str, report: Report) -> str:
    verdict = report.verdict if report.ok else f"**{report.verdict}**"
    first = f"`{report.violations[0].token}`" if report.violations else "none"
    return f"| {name} | {len(report.boundaries)} | {report.schedules} | {verdict} | {first} |"


def recipes(clock: Clock) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as made, redis_or_rows(Path(made)) as redis:
        for name in RECIPES:
            folder = Path(made, name)
            folder.mkdir()
            exhibit = Exhibit(name, folder, redis)
            try:
                title = name.replace("_then_", ", then ").replace("_", " ")
                yield told(title, clock.add(exhibit.prove()))
            finally:
                exhibit.close()


def verbs(clock: Clock, url: str) -> Iterator[str]:
    shop = Shop(url)
    try:
        for name in (*SOUND, *DECLARED):
            yield told(VERBS[name], clock.add(shop.prove(name)))
    finally:
        shop.close()


def figures() -> Iterator[str]:
    head = ["| boundaries | schedules | verdict | first at |", "|---|---|---|---|---|"]
    yield from (f"| recipe {head[0]}", head[1])
    on_sqlite = Clock()
    yield from recipes(on_sqlite)
    yield f"\nOn SQLite, two faults where one breaks nothing: {on_sqlite}.\n"
    yield from (f"| verb, on PostgreSQL, one fault {head[0]}", head[1])
    with Cluster() as cluster:
        on_postgres = Clock()
        yield from verbs(on_postgres, cluster.create_database("figures"))
        yield f"\nOn PostgreSQL: {on_postgres}, without the server's own."


def main() -> None:
    began = time.monotonic()
    lines = []
    for line in figures():
        print(line, flush=True)
        lines.append(line)
    print(f"\n{time.monotonic() - began:.0f} seconds in all", file=sys.stderr)
    if "--write" in sys.argv:
        new = "\n".join(["", *lines, "", ""])
        text = GUIDE.read_text()
        assert BLOCK.search(text)
        GUIDE.write_text(BLOCK.sub(lambda match: match[1] + new + match[2], text))


if __name__ == "__main__":
    main()
