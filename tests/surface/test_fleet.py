"""Several processes of one command: whenever the signal comes, all of them hear of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from oncely.surface.cli import worker
from oncely.surface.cli.worker import fleet

ENDS = [sys.executable, "-c", "raise SystemExit(3)"]
STAYS = ["sleep", "3600"]


@pytest.fixture(autouse=True)
def _signals_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "_CRASH_PAUSE_SECONDS", 0)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("commands", [[STAYS, STAYS], [STAYS, ENDS, STAYS]], ids=["all", "one"])
def test_a_process_that_is_being_started_hears_the_signal(
    monkeypatch: pytest.MonkeyPatch, commands: list[list[str]], number: int
) -> None:
    """The first time, or in the place of one that has died."""
    left = list(commands)

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__(left.pop(0), stderr=subprocess.DEVNULL)
            if not left:
                os.kill(os.getpid(), number)

    monkeypatch.setattr("oncely.surface.cli.worker.subprocess.Popen", Started)
    assert fleet(2) == 0
    assert left == []


def test_nothing_is_started_any_more_after_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Started(subprocess.Popen[bytes]):
        def __init__(self, *_: Any, **__: Any) -> None:
            started.append(self)
            super().__init__(STAYS, stderr=subprocess.DEVNULL)
            os.kill(os.getpid(), signal.SIGTERM)

    started: list[Started] = []
    monkeypatch.setattr("oncely.surface.cli.worker.subprocess.Popen", Started)
    assert fleet(3) == 0
    assert [each.returncode for each in started] == [-signal.SIGTERM]
