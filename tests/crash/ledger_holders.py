"""A process at work on entries of a ledger: it tells that it is in the middle, and waits."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from oncely import Ledger

VERBS = ("step", "fence")


def effect(folder: Path, key: str) -> str:
    with (folder / key).open("a") as file:
        file.write("done\n")
    return f"result of {key}"


def hold(url: str, folder: Path, lease_seconds: float, renew_seconds: float) -> None:
    """One call of each verb at once, under a key that is its name; each entry is renewed so often,
    and not after a third of the lease. The file `turns` grows by a byte after each turn."""

    def slow(key: str) -> str:
        value = effect(folder, key)
        (folder / f"{key} is in the middle").touch()
        while not (folder / "go on").exists():
            time.sleep(0.02)
        return value

    with Ledger(url, lease_seconds=lease_seconds) as ledger, ThreadPoolExecutor() as threads:
        holder: Any = ledger._holder
        holder._every_seconds = renew_seconds
        next_turn = holder._next
        (folder / "turns").touch()

        def note_and_go_on() -> Any:
            with (folder / "turns").open("a") as file:
                file.write(".")
            return next_turn()

        holder._next = note_and_go_on
        calls: list[Any] = [
            threads.submit(getattr(ledger, verb), verb, slow, verb) for verb in VERBS
        ]
        for call in calls:
            call.result()
