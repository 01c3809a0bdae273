"""Whoever is at work on an entry keeps it while it lives, however long it takes; no longer."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psycopg
import pytest

from oncely import InDoubt, InProgress, Ledger
from oncely.flow.entries import intend
from oncely.store.ledger import plans
from tests.crash.ends import end
from tests.crash.fleet import start, thread
from tests.crash.ledger_holders import VERBS, effect, hold
from tests.waiting import PATIENCE_SECONDS, wait_until

LEASE_SECONDS = 600.0
"""Nobody loses an entry because the machine is busy: the tests let its time pass."""
NEVER_SECONDS = 3600.0


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger(url, wait_seconds=PATIENCE_SECONDS) as ledger:
        ledger.migrate()
        yield ledger


@contextmanager
def held(url: str, tmp_path: Path, renew_seconds: float) -> Iterator[ForkServerProcess]:
    process = start(hold, url, tmp_path, LEASE_SECONDS, renew_seconds)
    try:
        for verb in VERBS:
            wait_until((tmp_path / f"{verb} is in the middle").exists, f"the {verb} is under way")
        yield process
    finally:
        end([process])


def lines(folder: Path, key: str) -> int:
    return (folder / key).read_text().count("done")


def look(ledger: Ledger, key: str) -> plans.Found:
    found = ledger._engine.run(lambda _: plans.look(intend(key, "step", ())), "read")
    assert found is not None
    return found


def let_lease_pass(url: str) -> None:
    """As if twice its time had passed since the entries were begun, and since they were renewed."""
    if url.startswith("sqlite"):
        past = int(2 * LEASE_SECONDS * 1_000_000)
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(
                "update oncely_ledger set held_until = held_until - ?, begun_at = begun_at - ?",
                (past, past),
            )
        return
    with psycopg.connect(url) as server:
        server.execute(
            "update oncely.ledger set held_until = held_until - %(past)s,"
            " begun_at = begun_at - %(past)s",
            {"past": timedelta(seconds=2 * LEASE_SECONDS)},
        )


def test_who_lives_keeps_it_past_its_lease(ledger: Ledger, url: str, tmp_path: Path) -> None:
    """A second call waits, and is told so in the end; one with more patience gets the result."""
    with held(url, tmp_path, renew_seconds=0.05) as holder:
        let_lease_pass(url)
        turns = (tmp_path / "turns").stat().st_size
        # The one that is under way, and one that is begun after the time has passed.
        wait_until(lambda: (tmp_path / "turns").stat().st_size >= turns + 2, "two turns are over")
        for verb in VERBS:
            found = look(ledger, verb)
            assert found.live
            assert found.entry.age_seconds > LEASE_SECONDS
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
    ledger: Ledger, url: str, tmp_path: Path, can_ask: bool
) -> None:
    """It had done both, and could not say so: a step is repeated, a fence never is."""

    def again(key: str) -> str:
        return effect(tmp_path, key)

    def find(key: str) -> str | None:
        return f"found {key}" if lines(tmp_path, key) else None

    with held(url, tmp_path, NEVER_SECONDS) as holder:
        calls = {
            "step": thread(ledger.step, "step", again, "step"),
            "fence": thread(
                lambda: ledger.fence("fence", again, "fence", verify=find if can_ask else None)
            ),
        }
        end([holder])
    let_lease_pass(url)
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
