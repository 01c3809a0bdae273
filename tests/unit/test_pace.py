"""How far ahead a worker claims, and from where in the line."""

from oncely.store.claim import Claimed, Fence
from oncely.worker.bounds import Bounds
from oncely.worker.pace import AHEAD_LIMIT, HAND_SECONDS, LINGER_SECONDS, Pace

PLACES = 4


def paced(*, job_seconds: float, exchange_seconds: float) -> Pace:
    """After some exchanges, in each of which one job per place has ended."""
    pace = Pace(PLACES)
    for n in range(4):
        for _ in range(PLACES):
            pace.ended(job_seconds)
        pace.exchanged(exchange_seconds, n * job_seconds)
    return pace


def test_nothing_is_fetched_ahead_before_something_has_ended() -> None:
    assert Pace(PLACES).ahead == 0


def test_of_quick_jobs_so_many_are_ahead_as_begin_while_the_store_answers() -> None:
    assert paced(job_seconds=0.001, exchange_seconds=0.01).ahead == 2 * PLACES * 10
    assert paced(job_seconds=0.00001, exchange_seconds=0.01).ahead == AHEAD_LIMIT


def test_a_store_that_takes_long_does_not_make_more_wait_than_can_begin_in_time() -> None:
    ahead = paced(job_seconds=0.01, exchange_seconds=60).ahead
    assert ahead * 0.01 / PLACES <= HAND_SECONDS / 2


def test_jobs_that_take_a_moment_come_in_waves() -> None:
    pace = paced(job_seconds=0.05, exchange_seconds=0.003)
    assert (pace.ahead, pace.in_waves) == (PLACES, True)


def test_a_lease_is_over_soon_after_its_first_job_has_ended() -> None:
    for job_seconds in (0.001, 0.01, 0.05, 1):
        pace = paced(job_seconds=job_seconds, exchange_seconds=0.03)
        assert pace.lease_limit >= PLACES
        assert (pace.lease_limit / PLACES - 1) * job_seconds <= LINGER_SECONDS / 2
    assert paced(job_seconds=0.00001, exchange_seconds=0.03).lease_limit >= AHEAD_LIMIT


def test_where_the_store_costs_next_to_nothing_none_waits_behind_another() -> None:
    assert paced(job_seconds=0.05, exchange_seconds=0.0001).ahead == 0


def test_long_jobs_are_not_fetched_ahead() -> None:
    pace = paced(job_seconds=1, exchange_seconds=0.01)
    assert (pace.ahead, pace.in_waves) == (0, False)


def test_an_exchange_in_which_none_can_have_ended_says_nothing() -> None:
    pace = paced(job_seconds=0.05, exchange_seconds=0.003)
    pace.exchanged(0.003, 3 * 0.05 + 0.003)
    assert pace.ahead == PLACES


def test_one_slow_job_is_enough_to_hold_back() -> None:
    pace = paced(job_seconds=0.05, exchange_seconds=0.003)
    pace.exchanged(0.003, 10)
    assert pace.ahead == 0


def test_a_job_that_is_due_together_with_the_last_one_is_behind_the_bound() -> None:
    last = Claimed(
        *("job", Fence(1, 1), "k", "q", None, "null", 0, 0, 0, None, None, 9.0, None),
        *(None, 9.0),
    )
    bounds = Bounds()
    bounds.claimed([last], asked_at=100.0)
    store_reads_its_clock_late = 0.05
    ago_seconds = bounds.of("q", now=103.0)[0] / 1_000_000
    assert ago_seconds >= 9.0 + 3.0 + store_reads_its_clock_late


def test_where_none_runs_an_exchange_says_nothing_of_how_quick_they_are() -> None:
    pace = paced(job_seconds=0.001, exchange_seconds=0.01)
    before = pace.ahead
    for n in range(10, 14):
        pace.exchanged(0.01, n, idle=True)
    assert pace.ahead == before
    for n in range(14, 16):
        pace.exchanged(0.01, n)
    assert pace.ahead == 0
