from hypothesis import given
from hypothesis import strategies as st

from oncely.model.flow import UNLIMITED, Limit, share

lanes_and_limits = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.none() | st.builds(
        Limit,
        held=st.booleans(),
        paused=st.booleans(),
        concurrency=st.none() | st.integers(1, 9),
        rate=st.none() | st.just((3, 1.0)),
        tokens=st.floats(0, 9),
        running=st.integers(0, 9),
    ),
    max_size=12,
)  # fmt: skip


@given(lanes_and_limits, st.integers(1, 20))
def test_a_share_never_exceeds_a_limit_and_leaves_nobody_out(
    found: dict[str, Limit | None], room: int
) -> None:
    limits = {lane: limit for lane, limit in found.items() if limit is not None}
    quotas = share(list(found), limits, room)
    may_run = [lane for lane in found if limits.get(lane, UNLIMITED).room(room)]
    assert list(quotas) == may_run[:room]
    for lane, quota in quotas.items():
        assert 0 < quota == limits.get(lane, UNLIMITED).room(quota)
    # All that there is room for is asked for, and not one more: only a limit can keep it below.
    assert sum(quotas.values()) <= room
    if quotas and not limits:
        assert sum(quotas.values()) == room
        assert max(quotas.values()) - min(quotas.values()) <= 1


def test_a_share_goes_by_the_order_of_the_lanes() -> None:
    limits = {"c": Limit(held=True, concurrency=5, running=3), "d": Limit(held=True, paused=True)}
    assert share(["a", "b", "c", "d", "e"], limits, 14) == {"a": 4, "b": 4, "c": 2, "e": 3}
    assert share(["a", "b", "c", "d", "e"], limits, 3) == {"a": 1, "b": 1, "c": 1}


def test_a_limit_is_tight_where_little_is_left_of_it() -> None:
    assert not UNLIMITED.is_tight
    assert not Limit(held=True, concurrency=10, running=5).is_tight
    assert Limit(held=True, concurrency=10, running=6).is_tight
    assert Limit(held=True, rate=(1_000, 1.0), tokens=900).is_tight
    assert not Limit(held=True, paused=True, rate=(1_000, 1.0)).is_tight
    assert not Limit(held=False).is_tight


def test_room() -> None:
    assert UNLIMITED.room(7) == 7
    assert Limit(held=False).room(7) == 0
    assert Limit(held=True, paused=True).room(7) == 0
    assert Limit(held=True, concurrency=3, running=5).room(7) == 0
    assert Limit(held=True, rate=(2, 1.0), tokens=1.9).room(7) == 1
    assert Limit(held=True, concurrency=4, running=1, rate=(9, 1.0), tokens=2.5).room(7) == 2


def test_when_to_look_again() -> None:
    assert Limit(held=True, concurrency=1, running=1).wait_seconds() is None
    assert Limit(held=True, paused=True, rate=(1, 1.0)).wait_seconds() is None
    assert Limit(held=True, rate=(2, 10.0), tokens=0.5).wait_seconds() == 2.5
    assert Limit(held=False).wait_seconds() is not None
