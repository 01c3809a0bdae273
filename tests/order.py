"""In which order the tests run where several processes share them.

Each process gets a part of the list, from the front, and one that is done takes over from the end
of another's. So the files that take longest are dealt out to the fronts of the parts: otherwise one
process is left with them at the end while the others have nothing to do.
"""

import os
from typing import TypeVar

import pytest

T = TypeVar("T")

LONGEST = (
    "tests/surface/http/test_fuzz.py",
    "tests/surface/dashboard/test_browser.py",
    "tests/prove/test_database_faults.py",
    "tests/prove/test_sound.py",
    "tests/prove/test_teams_page.py",
    "tests/surface/test_demo.py",
    "tests/docs/test_docs.py",
    "tests/prove/test_exhibits.py",
    "tests/crash/test_effect_crashes.py",
    "tests/crash/test_remote.py",
    "tests/prove/test_service_faults.py",
    "tests/prove/test_fresh.py",
    "tests/prove/test_honest.py",
    "tests/prove/test_file_writes.py",
    "tests/prove/test_libraries.py",
    "tests/prove/test_databases.py",
    "tests/prove/test_pools.py",
    "tests/engine/test_model_machine.py",
    "tests/crash/test_ledger.py",
    "tests/prove/test_harmless.py",
    "tests/prove/test_all_kinds.py",
    "tests/prove/test_baseline.py",
    "tests/prove/test_pauses.py",
    "tests/surface/test_script.py",
)
"""From the longest on."""


def longest_first(items: list[pytest.Item]) -> None:
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes > 1:
        items[:] = dealt(items, [item.nodeid.partition("::")[0] for item in items], processes)


def dealt(items: list[T], files: list[str], processes: int) -> list[T]:
    """All items, in as many parts of the same length, each with its share of the longest first."""
    fronts: list[list[T]] = [[] for _ in range(processes)]
    for number, file in enumerate(LONGEST):
        turn, place = divmod(number, processes)
        front = fronts[processes - 1 - place if turn % 2 else place]
        front += [item for item, its_file in zip(items, files, strict=True) if its_file == file]
    rest = [item for item, file in zip(items, files, strict=True) if file not in LONGEST]
    order: list[T] = []
    for number, front in enumerate(fronts, 1):
        room = max(0, number * len(items) // processes - len(order) - len(front))
        order += [*front, *(rest[:room] if number < processes else rest)]
        rest = rest[room:]
    return order
