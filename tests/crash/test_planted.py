"""The tests themselves: a planted bug turns one of them red. Some here, all in `make torture`. That
they are green without a bug this run shows by itself."""

from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.planted import (
    BUGS,
    PLAIN_PATH,
    Bug,
    Copy,
    Edit,
    Stale,
    spoiled,
    survived,
)

NAMES = ("settle by job id, on postgres",)
QUICK = [bug for bug in BUGS if bug.name in NAMES]
HARMLESS = Edit("store/deliver.py", '"""Plans of delivery', '"""The plans of delivery')


@pytest.mark.parametrize("bug", QUICK, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(cluster: Cluster, bug: Bug) -> None:
    assert survived(bug, cluster.url()) is None


@pytest.mark.torture
def test_a_bug_that_nobody_notices_is_told(cluster: Cluster) -> None:
    told = survived(Bug("harmless", (HARMLESS,), (PLAIN_PATH,)), cluster.url())
    assert told == f"still green: {PLAIN_PATH}"


@pytest.mark.torture
def test_a_bug_that_breaks_everything_is_not_taken_for_caught(cluster: Cluster) -> None:
    broken = Edit("worker/hands.py", "isinstance(ending, Returned) and", "False and")
    worse = Edit("model/outcome.py", 'Rest("completed", result=result)', 'Rest("failed")')
    test = f"{PLAIN_PATH}[sqlite]"
    told = survived(Bug("broken", (broken, worse), (test,), plain=test), cluster.url())
    assert told == f"nothing works any more: {test}"


def test_text_that_is_no_longer_there_fails_loudly(tmp_path: Path) -> None:
    gone = Edit("store/deliver.py", "text that was never there", "")
    with pytest.raises(Stale, match=r"gone: store/deliver\.py does not say"):
        Copy(tmp_path, "").plant(Bug("gone", (gone,), ()))


def test_every_bug_can_be_planted() -> None:
    assert len(QUICK) == len(NAMES)
    for bug in BUGS:
        assert spoiled(bug)
