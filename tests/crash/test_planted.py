"""The tests themselves: a planted bug turns one of them red. Some here, all in `make torture`. That
they are green without a bug this run shows by itself."""

import asyncio
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.planted import (
    BUGS,
    PLAIN_PATH,
    Bug,
    Copy,
    Edit,
    Red,
    Stale,
    spoiled,
    still_wrong,
    survived,
)

NAMES = ("settle by job id, on postgres",)
QUICK = [bug for bug in BUGS if bug.name in NAMES]
RED = """
import time, pytest
def test_right(): pass
def test_wrong(): assert False
@pytest.mark.timeout(0.1)
def test_hanging(): time.sleep(60)
"""
HARMLESS = Edit("store/deliver.py", '"""Plans of delivery', '"""The plans of delivery')


@pytest.mark.parametrize("bug", QUICK, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(cluster: Cluster, bug: Bug) -> None:
    assert asyncio.run(survived(bug, cluster.url())) is None


@pytest.mark.torture
def test_a_bug_that_nobody_notices_is_told(cluster: Cluster) -> None:
    told = asyncio.run(survived(Bug("harmless", (HARMLESS,), (PLAIN_PATH,)), cluster.url()))
    assert told == f"still green: {PLAIN_PATH}"


@pytest.mark.torture
def test_a_bug_that_breaks_everything_is_not_taken_for_caught(cluster: Cluster) -> None:
    broken = Edit("worker/hands.py", "isinstance(ending, Returned) and", "False and")
    worse = Edit("model/outcome.py", 'Rest("completed", result=result)', 'Rest("failed")')
    test = f"{PLAIN_PATH}[sqlite]"
    bug = Bug("broken", (broken, worse), (test,), plain=test)
    told = asyncio.run(survived(bug, cluster.url()))
    assert told == f"nothing works any more: {test}"


def test_a_test_that_does_not_end_shows_only_a_bug_that_hangs() -> None:
    late = [Red("test_it", timed_out=True)]
    assert still_wrong(Bug("hangs", (), ("test_it",), hangs=True), late) is None
    assert "may be the machine" in (still_wrong(Bug("does not", (), ("test_it",)), late) or "")
    slow = Bug("all is slow", (), ("test_it",), plain="test_plain", hangs=True)
    told = still_wrong(slow, [Red("test_plain", timed_out=True)])
    assert told == "nothing works any more: test_plain"


@pytest.mark.torture
def test_why_a_test_is_red_is_told(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "")
    (tmp_path / "tests/test_red.py").write_text(RED)
    red = asyncio.run(copy.red(["tests/test_red.py"]))
    assert {(one.test.partition("::")[2], one.timed_out) for one in red} == {
        ("test_wrong", False),
        ("test_hanging", True),
    }


def test_text_that_is_no_longer_there_fails_loudly(tmp_path: Path) -> None:
    gone = Edit("store/deliver.py", "text that was never there", "")
    with pytest.raises(Stale, match=r"gone: store/deliver\.py does not say"):
        Copy(tmp_path, "").plant(Bug("gone", (gone,), ()))


def test_every_bug_can_be_planted() -> None:
    assert len(QUICK) == len(NAMES)
    for bug in BUGS:
        assert spoiled(bug)
