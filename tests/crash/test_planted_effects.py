"""The planted bugs of the effect layer: some here, all in `make torture`."""

import asyncio

import pytest

from tests.cluster import Cluster
from tests.planted import Bug, spoiled, survived
from tests.planted_effects import EFFECT_BUGS

NAMES = ("the outcome is recorded before the effect",)
QUICK = [bug for bug in EFFECT_BUGS if bug.name in NAMES]


@pytest.mark.torture
@pytest.mark.parametrize("bug", QUICK, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(cluster: Cluster, bug: Bug) -> None:
    assert asyncio.run(survived(bug, cluster.url())) is None


def test_every_bug_can_be_planted() -> None:
    assert len(QUICK) == len(NAMES)
    for bug in EFFECT_BUGS:
        assert spoiled(bug)
