"""Run as a program, in a name space of its own: a SQLite store on a disk of a few megabytes.

`python -m tests.crash.full_disk FOLDER`, where FOLDER is a small disk. It prints what happened
as JSON; the test that started it judges.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from oncely import NewJob, Oncely, Receipt, StoreUnavailable
from tests.crash.checker import check

PADDING = "." * 40_000
LIMIT = 10_000


def fill(app: Oncely) -> tuple[list[str], str]:
    """Enqueue until the store refuses: the ids it gave, and what it said then."""
    ids: list[str] = []
    for _ in range(LIMIT):
        try:
            ids.append(app.enqueue("fill", PADDING).job_id)
        except StoreUnavailable as error:
            return ids, str(error)
    raise AssertionError(f"the disk was not full after {LIMIT} jobs")


def refused(app: Oncely) -> str:
    try:
        app.enqueue_many([NewJob("batch", PADDING, idempotency_key=f"b{n}") for n in range(50)])
    except StoreUnavailable as error:
        return str(error)
    return ""


def repeats(app: Oncely) -> Iterator[Receipt]:
    """A repeat is recognised, or refused because it cannot be written down; it is never a job."""
    for n in range(5):
        with suppress(StoreUnavailable):
            yield app.enqueue("later", PADDING, idempotency_key=f"later-{n}")


def main(folder: Path) -> dict[str, Any]:
    url = f"sqlite:///{folder / 'jobs.db'}"
    ballast = folder / "ballast"
    ballast.write_bytes(b"." * 6 * 1024 * 1024)
    with Oncely(url) as app:
        acknowledged, said = fill(app)
        batch_said = refused(app)
        stored = set(check(url).jobs)
        ballast.unlink()
        later = [app.enqueue("later", PADDING, idempotency_key=f"later-{n}") for n in range(5)]
        stored_later = set(check(url).jobs)
    with Oncely(url) as app:
        more, _ = fill(app)
        again = list(repeats(app))
        stored_last = set(check(url).jobs)
    return {
        "said": said,
        "batch_said": batch_said,
        "count": len(acknowledged),
        "lost": len(set(acknowledged) - stored),
        "stored_though_refused": len(stored - set(acknowledged)),
        "later": all(r.inserted for r in later),
        "later_lost": len({r.job_id for r in later} - stored_later),
        "again": all(not r.inserted for r in again),
        "last": len(stored_last - stored_later - set(more)),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
