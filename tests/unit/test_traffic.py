"""The buckets of traffic: what is added up has the percentiles of all of it."""

import math
import random
from itertools import pairwise

from oncely.model.traffic import BOUNDS, STEPS, buckets, latency


def test_percentiles_are_at_most_a_fifth_off_and_merge() -> None:
    chance = random.Random(7)
    seconds = [chance.lognormvariate(-3, 2) for _ in range(5_000)]
    parts = [buckets(seconds[n::3]) for n in range(3)]
    found = latency(parts)
    assert found == latency([buckets(seconds)])
    assert found is not None
    assert found.count == 5_000
    seconds.sort()
    for told, part in ((found.p50, 0.5), (found.p95, 0.95), (found.p99, 0.99)):
        assert abs(math.log(told / seconds[int(5_000 * part)])) < math.log(1.2)


def test_the_smallest_and_the_largest_have_a_bucket() -> None:
    assert buckets([-1.0, 0.0, 1e-6, 1e12]) == {0: 3, len(BOUNDS): 1}
    found = latency([{0: 3, len(BOUNDS): 1}])
    assert found is not None
    assert 0 < found.p50 <= BOUNDS[0]
    assert found.p99 == BOUNDS[-1]


def test_nothing_has_no_percentiles() -> None:
    assert latency([]) is None
    assert latency([{}]) is None


def test_a_step_of_a_longer_chart_holds_whole_ones_of_a_shorter() -> None:
    lengths = [seconds for seconds, _ in STEPS.values()]
    assert all(long % short == 0 for short, long in pairwise(lengths))
