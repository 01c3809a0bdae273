"""The order of a story, whatever the clock did meanwhile."""

from datetime import UTC, datetime, timedelta

import pytest

from oncely.model.event import WHATS, Event
from oncely.model.story import Act, Delivery, Enqueued, Lease, Now, Repeat, Story, Word, tell
from oncely.model.transition import OUTCOMES, State

START = datetime(2026, 11, 15, 22, 51, 11, 823_000, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


ENQUEUED = Enqueued("id", "a", "default", "k:1", None, at(0), at(0))


def story(
    *facts: Delivery | Repeat | Lease, state: State = "pending", due: float = 0, now: float = 99
) -> Story:
    leases = [fact for fact in facts if isinstance(fact, Lease)]
    return tell(
        ENQUEUED,
        Now(at(now), state, at(due), 0),
        leases[0] if leases else None,
        [fact for fact in facts if isinstance(fact, Delivery)],
        [fact for fact in facts if isinstance(fact, Repeat)],
    )


def delivery(epoch: int, began: float, ended: float, due: float | None = None) -> Delivery:
    return Delivery(
        "completed" if due is None else "retried",
        epoch,
        1,
        "w",
        at(began),
        at(ended),
        None if due is None else at(due),
        None,
    )


def repeat(seconds: float) -> Repeat:
    return Repeat(at(seconds), "enqueue", "idempotency", None, None, None, None)


def told(story: Story) -> list[tuple[str, int | None]]:
    return [(event.what, event.epoch) for event in story]


def test_the_epochs_decide_and_not_the_clock() -> None:
    """The clock was set back by a minute after the first delivery."""
    assert told(story(delivery(7, -50, -49), delivery(3, 5, 9, 9))) == [
        ("enqueued", None), ("claimed", 3), ("retried", 3), ("claimed", 7), ("completed", 7),
    ]  # fmt: skip


def test_a_repeat_stands_after_what_had_happened_by_then() -> None:
    events = told(story(delivery(1, 1, 2, 2), delivery(2, 3, 4), *map(repeat, (5, 2.5, -1, 1.5))))
    assert [what for what, _ in events] == [
        "enqueued", "deduplicated", "claimed", "deduplicated", "retried", "deduplicated", "claimed",
        "completed", "deduplicated",
    ]  # fmt: skip


def test_in_one_moment_calls_come_first_and_late_ends_last() -> None:
    late = Repeat(at(1), "delivery", None, 0, 1, "w", "completed")
    events = story(delivery(1, 1, 1), late, repeat(1), repeat(1))
    assert [(event.what, event.boundary) for event in events] == [
        ("enqueued", None),
        ("deduplicated", "enqueue"),
        ("deduplicated", "enqueue"),
        ("claimed", None),
        ("completed", None),
        ("deduplicated", "delivery"),
    ]


def test_how_long_it_waited_and_ran() -> None:
    claims = [e for e in story(delivery(1, 1, 3, 33), delivery(2, 35, 36)) if e.what == "claimed"]
    assert [event.waited_seconds for event in claims] == [1, 2]
    ends = [e.ran_seconds for e in story(delivery(1, 1, 3, 33)) if e.what == "retried"]
    assert ends == [2]


def test_a_job_that_was_ended_while_it_waited_ended_last() -> None:
    cancelled = Delivery("cancelled", None, 1, None, None, at(5), None, None)
    assert told(story(cancelled, delivery(1, 1, 2, 2)))[-1] == ("cancelled", None)


@pytest.mark.parametrize(
    ("facts", "state", "said"),
    [
        ([], "pending", "waits for a worker, due since 2026-11-15 22:51:11.823 UTC"),
        ([], "scheduled", "waits, due in 30 s"),
        (
            [Lease(1, "w", at(0), at(60), begun=True)],
            "running",
            "running since 2026-11-15 22:51:11.823 UTC on worker w, whose lease lasts until "
            "2026-11-15 22:52:11.823 UTC",
        ),
        (
            [Lease(1, "w", at(0), at(60), begun=False)],
            "running",
            "fetched ahead, and perhaps begun, since 2026-11-15 22:51:11.823 UTC on worker w, "
            "whose lease lasts until 2026-11-15 22:52:11.823 UTC",
        ),
        ([], "failed", "failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_it_waits_for(facts: list[Lease], state: State, said: str) -> None:
    due, now = (40, 10) if state == "scheduled" else (0, 10)
    assert story(*facts, state=state, due=due, now=now).now == said


@pytest.mark.parametrize(("epoch", "runs"), [(1, True), (0, False)])
def test_an_effect_shows_that_what_was_fetched_ahead_is_begun(epoch: int, *, runs: bool) -> None:
    lease = Lease(1, "w", at(0), at(60), begun=False)
    mail = Act("mail", "begun", None, epoch, at(0), None)
    found = tell(ENQUEUED, Now(at(9), "running", at(0), 0), lease, [], [], [mail])
    assert found.now.startswith("running since") is runs


def test_an_error_is_one_line_whatever_is_in_it() -> None:
    error = {"type": "E", "message": f"a\r\n\n\tb \x1b\x9b \u202e{'x' * 300}", "traceback": "t"}
    event = Event(what="failed", job_id="id", kind="a", queue="q", error=error)
    assert event.reason is not None
    assert event.reason.startswith("E: a b \\x1b\\x9b \\u202ex")
    assert event.reason.endswith("x…")
    assert event.reason.isprintable()


def test_every_resting_state_has_its_word() -> None:
    assert set(OUTCOMES) <= set(WHATS)


def test_in_one_moment_effects_stand_between_claim_and_end_and_an_answer_before_the_next() -> None:
    """A clock that cannot tell any of it apart."""
    held = Delivery("in_doubt", 1, 1, "w", at(1), at(1), at(1), None)
    found = [Repeat(at(1), "effect", None, 2, 1, "w", name) for name in ("charge", "mail")]
    events = tell(
        ENQUEUED,
        Now(at(9), "completed", at(1), 0),
        None,
        [held, delivery(2, 1.001, 1.002)],
        found,
        [
            Act("mail", "done", "resolved", 1, at(1), at(1)),
            Act("charge", "done", "returned", 1, at(1), at(1)),
        ],
        [Word(at(1), "mail", "happened", "ann", None)],
    )
    order = [(event.what, event.effect) for event in events]
    assert order[0:2] == [("enqueued", None), ("claimed", None)]
    begun, done = order.index(("effect_begun", "charge")), order.index(("effect_done", "charge"))
    assert 1 < begun < done < order.index(("in_doubt", None))
    assert order[5:] == [
        ("in_doubt", None),
        ("resolved", "mail"),
        ("claimed", None),
        ("deduplicated", "charge"),
        ("deduplicated", "mail"),
        ("completed", None),
    ]


def test_an_effect_that_has_no_end_began_last() -> None:
    acts = [
        Act("mail", "in_doubt", None, 1, at(1), None),
        Act("charge", "done", "returned", 1, at(1), at(1)),
    ]
    held = Delivery("in_doubt", 1, 1, "w", at(1), at(1), None, None)
    events = tell(ENQUEUED, Now(at(9), "in_doubt", at(1), 0), None, [held], [], acts)
    assert [event.effect for event in events] == [None, None, "charge", "charge", "mail", None]
    assert "whether effect 'mail' (begun " in events.now
