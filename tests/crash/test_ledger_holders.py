"""Whoever is at work on an entry keeps it while it lives, however long it takes; no longer."""

from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from oncely import InDoubt, InProgress, Ledger
from oncely.flow.entries import intend
from oncely.store.ledger import plans
from tests.crash.ends import end
from tests.crash.fleet import start, thread
from tests.crash.ledger_holders import VERBS, effect, hold
from tests.waiting import PATIENCE_SECONDS, wait_until

LEASE_SECONDS = 2.0


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger(url) as ledger:
        ledger.migrate()
        yield ledger


@pytest.fixture
def holder(ledger: Ledger, url: str, tmp_path: Path) -> Iterator[ForkServerProcess]:
    process = start(hold, url, tmp_path, LEASE_SECONDS)
    try:
        for verb in VERBS:
            wait_until((tmp_path / f"{verb} is in the middle").exists, f"the {verb} is under way")
        yield process
    finally:
        end([process])


def lines(folder: Path, key: str) -> int:
    return (folder / key).read_text().count("done")


def age_seconds(ledger: Ledger, key: str) -> float:
    """By the clock of the database, which is the one that leases go by."""
    found = ledger._engine.run(lambda _: plans.look(intend(key, "step", ())), "read")
    assert found is not None
    return found.entry.age_seconds


def test_who_lives_keeps_it_past_its_lease(
    ledger: Ledger, holder: ForkServerProcess, url: str, tmp_path: Path
) -> None:
    """A second call waits, and is told so in the end; one with more patience gets the result."""
    for verb in VERBS:
        wait_until(
            lambda verb=verb: age_seconds(ledger, verb) > LEASE_SECONDS,  # type: ignore[misc]
            "the lease would be over",
        )
    waiting = {verb: thread(getattr(ledger, verb), verb, str, verb) for verb in VERBS}
    with Ledger(url, wait_seconds=0.3) as impatient:
        for verb in VERBS:
            with pytest.raises(InProgress, match=rf"'{verb}'.*Repeat it later"):
                getattr(impatient, verb)(verb, str, verb)
    assert not any(call.done() for call in waiting.values())
    (tmp_path / "go on").touch()
    for verb, call in waiting.items():
        assert call.result(PATIENCE_SECONDS) == f"result of {verb}"
        assert lines(tmp_path, verb) == 1
    holder.join(PATIENCE_SECONDS)
    assert holder.exitcode == 0


@pytest.mark.parametrize("can_ask", [False, True], ids=["hold", "verify"])
def test_who_is_killed_lets_the_next_go_on_by_the_rules(
    ledger: Ledger, holder: ForkServerProcess, url: str, tmp_path: Path, can_ask: bool
) -> None:
    """It had done both, and could not say so: a step is repeated, a fence never is."""

    def again(key: str) -> str:
        return effect(tmp_path, key)

    def find(key: str) -> str | None:
        return f"found {key}" if lines(tmp_path, key) else None

    calls = {
        "step": thread(ledger.step, "step", again, "step"),
        "fence": thread(
            lambda: ledger.fence("fence", again, "fence", verify=find if can_ask else None)
        ),
    }
    holder.kill()
    assert calls["step"].result(PATIENCE_SECONDS) == "result of step"
    assert lines(tmp_path, "step") == 2
    if can_ask:
        assert calls["fence"].result(PATIENCE_SECONDS) == "found fence"
    else:
        with pytest.raises(InDoubt, match="an earlier call began it"):
            calls["fence"].result(PATIENCE_SECONDS)
        assert [doubt.key for doubt in ledger.in_doubt()] == ["fence"]
        ledger.resolve("fence", happened=True, result="found fence")
    assert ledger.fence("fence", again, "fence") == "found fence"
    assert lines(tmp_path, "fence") == 1
