from hypothesis import given
from hypothesis import strategies as st

from oncely.model.flow import UNLIMITED, Limit, Take, share

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
    takes = share(list(found), limits, room)
    taken = [lane for take in takes for lane in take.lanes]
    assert taken == [lane for lane in found if limits.get(lane, UNLIMITED).room(room)]
    for take in takes:
        assert take.quota > 0
        for lane in take.lanes:
            assert take.limited == (lane in limits)
            assert limits.get(lane, UNLIMITED).room(take.quota) == take.quota
    # Enough is asked for: only a limit can keep it below the room.
    if takes and not limits:
        assert sum(take.quota * len(take.lanes) for take in takes) >= room


def test_neighbours_without_a_limit_are_taken_together() -> None:
    limits = {"c": Limit(held=True, concurrency=5, running=3)}
    assert share(["a", "b", "c", "d"], limits, 8) == [
        Take(["a", "b"], 2, limited=False),
        Take(["c"], 2, limited=True),
        Take(["d"], 2, limited=False),
    ]


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
