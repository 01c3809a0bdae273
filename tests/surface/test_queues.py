"""`oncely queues`."""

import pytest

from oncely import Oncely
from tests.surface.command import Command


def test_an_empty_store_has_none(at: Command) -> None:
    assert at("queues").out == "no jobs, no limits\n"
    assert at("queues", "--group").out == "no limit, no pause\n"
    assert at("queues", "--json").json() == []


def test_a_queue_is_limited_paused_and_freed(at: Command, url: str) -> None:
    at("enqueue", "k", "--queue", "mail")
    told = at("queues", "--set", "mail", "--concurrency", "3", "--rate", "5/2.5", "--timeout", "9")
    assert told.out == ("mail  1 waiting, 0 running, concurrency 3, rate 5 in 2.5 s, timeout 9 s\n")
    assert at("queues", "--pause", "mail").out.endswith(", paused, timeout 9 s\n")
    with Oncely(url) as app:
        assert app.drain() == 0
    at("queues", "--resume", "mail")
    lifted = at(
        "queues", "--set", "mail", "--concurrency", "none", "--rate", "none", "--timeout", "none"
    )
    assert lifted.out == "mail  1 waiting, 0 running\n"
    [queue] = at("queues", "--json").json()
    assert (queue["name"], queue["waiting"], queue["paused"]) == ("mail", 1, False)


def test_a_group_is_limited_and_paused(at: Command) -> None:
    told = at("queues", "--group", "--set", "acme", "--concurrency", "2")
    assert told.out == "acme  0 running, concurrency 2\n"
    assert at("queues", "--group", "--pause", "acme").out.endswith(", paused\n")
    assert at("queues", "--group", "--resume", "acme").out == "acme  0 running, concurrency 2\n"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--concurrency", "3"), "--concurrency goes with --set NAME"),
        (("--set", "q"), "nothing is set for queue 'q'"),
        (("--set", "q", "--concurrency", "x"), "--concurrency is 'x'"),
        (("--set", "q", "--concurrency", "1.5"), "concurrency is 1.5"),
        (("--set", "q", "--concurrency", "0"), "To stop it altogether, pause it"),
        (("--set", "q", "--rate", "5"), "--rate is '5'"),
        (("--set", "q", "--rate", "1.5/2"), "rate is (1.5, 2)"),
        (("--set", "q", "--rate", "1/nan"), "rate is (1, nan)"),
        (("--group", "--set", "q", "--timeout", "5"), "--timeout is for queues"),
        (("--pause", "q", "--resume", "q"), "--pause and --resume are given"),
        (("--pause", "a b"), "queue"),
    ],
)
def test_bad_input_changes_nothing(at: Command, args: tuple[str, ...], told: str) -> None:
    done = at("queues", *args)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert at("queues", "--json").json() == at("queues", "--group", "--json").json() == []
