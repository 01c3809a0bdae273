"""The record of HTTP requests: one run per key, and only its owner ends it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier
from typing import Any

import pytest

from oncely import InProgress, InvalidInput, Oncely, RequestNotFound
from oncely.model.request import Response, Seen
from oncely.store import requests
from oncely.store.requests import Mark
from tests.engine.steps import let_days_pass, sql

MINUTE = 60_000_000
DAY = 86_400_000_000
CREATED = Response(201, '[["x","y"]]', b"\x00\xff made")
_owners = count(1)


def mark(key: str = "k", scope: str = "ann", *, hold_us: int = MINUTE, keep_us: int = DAY) -> Mark:
    return Mark(scope, key, next(_owners), hold_us, keep_us)


def begin(
    app: Oncely,
    by: Mark,
    fingerprint: str = "f",
    *,
    run_unknown: bool = False,
    again: bool = False,
) -> Seen | None:
    return app._engine.run(
        lambda _: requests.begin(by, fingerprint, run_unknown=run_unknown, again=again), "write"
    )


def ask(app: Oncely, plan: Any) -> Any:
    return app._engine.run(lambda _: plan, "write")


def seen(app: Oncely) -> Seen:
    found = begin(app, mark())
    assert found is not None
    return found


def test_the_first_runs_and_the_next_finds_it_in_flight(app: Oncely) -> None:
    first = mark()
    assert begin(app, first) is None
    assert seen(app) == Seen(first.owner, "f", "in_flight", False, None, None, None)


def test_keys_of_different_callers_are_different(app: Oncely) -> None:
    assert begin(app, mark(scope="ann")) is None
    assert begin(app, mark(scope="bob")) is None
    assert begin(app, mark(scope="")) is None
    assert begin(app, mark(scope="bob")) is not None


def test_of_many_at_once_one_runs(app: Oncely) -> None:
    for round in range(10):
        gate = Barrier(8)

        def race(_: int, key: str = f"race:{round}", gate: Barrier = gate) -> bool:
            gate.wait()
            return begin(app, mark(key)) is None

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(race, range(8))) == 1


def test_the_response_comes_back_byte_for_byte(app: Oncely) -> None:
    first = mark()
    begin(app, first)
    assert ask(app, requests.done(first, CREATED))
    assert seen(app) == Seen(first.owner, "f", "done", False, 201, CREATED.headers, CREATED.body)


def test_an_empty_body_is_kept_and_one_too_large_is_not(app: Oncely) -> None:
    first, second = mark(), mark("large")
    begin(app, first)
    ask(app, requests.done(first, Response(204, "[]", b"")))
    assert seen(app).body == b""
    begin(app, second)
    ask(app, requests.done(second, Response(200, None, None)))
    found = begin(app, mark("large"))
    assert found is not None
    assert (found.state, found.status, found.body) == ("done", 200, None)


def test_who_says_nothing_for_too_long_leaves_the_outcome_unknown(app: Oncely) -> None:
    first = mark()
    begin(app, first)
    let_days_pass(app, 0.01)
    assert seen(app).let_go
    # It is asked again and again, and stays as it is.
    assert seen(app).let_go
    assert ask(app, requests.done(first, CREATED)), "evidence counts, however late it comes"
    assert seen(app).state == "done"


def test_who_renews_stays_in_flight(app: Oncely) -> None:
    first = mark()
    begin(app, first)
    let_days_pass(app, 30 / 86_400)
    assert ask(app, requests.renew(first))
    let_days_pass(app, 40 / 86_400)
    assert not seen(app).let_go


def test_a_run_that_is_renewed_for_longer_than_a_key_is_kept_is_not_forgotten(app: Oncely) -> None:
    first = mark()
    begin(app, first)
    let_days_pass(app, 0.9)
    ask(app, requests.renew(first))
    let_days_pass(app, 0.9)
    assert ask(app, requests.prune(10)) == 0
    assert begin(app, mark()) is not None


def test_a_successor_runs_only_if_that_is_declared(app: Oncely) -> None:
    begin(app, mark())
    assert begin(app, mark(), run_unknown=True) is not None, "it is still in flight"
    let_days_pass(app, 0.01)
    assert begin(app, mark(), run_unknown=False) is not None
    other = begin(app, mark(), "another body", run_unknown=True)
    assert other is not None
    assert other.fingerprint == "f"
    assert begin(app, mark(), run_unknown=True) is None
    assert begin(app, mark(), run_unknown=True) is not None


@pytest.mark.parametrize("successor_is_done", [False, True])
def test_a_late_owner_changes_nothing_of_its_successor(
    app: Oncely, successor_is_done: bool
) -> None:
    first, second = mark(), mark()
    begin(app, first)
    let_days_pass(app, 0.01)
    assert begin(app, second, run_unknown=True) is None
    if successor_is_done:
        ask(app, requests.done(second, CREATED))
    before = seen(app)
    assert before.owner == second.owner
    assert not ask(app, requests.done(first, Response(500, "[]", b"late")))
    assert not ask(app, requests.renew(first))
    assert not ask(app, requests.let_go(first))
    assert not ask(app, requests.clear(first))
    assert seen(app) == before


def test_a_run_that_gave_up_is_unknown_at_once(app: Oncely) -> None:
    first = mark()
    begin(app, first)
    assert ask(app, requests.let_go(first))
    assert seen(app).let_go
    assert not ask(app, requests.renew(first)), "a renewal that was under way"
    assert seen(app).let_go
    assert begin(app, mark(), run_unknown=True) is None


def test_what_is_cleared_may_run_and_what_is_done_cannot_be_cleared(app: Oncely) -> None:
    first, second = mark(), mark()
    begin(app, first)
    assert ask(app, requests.clear(first))
    assert begin(app, second, "another body") is None
    ask(app, requests.done(second, CREATED))
    assert not ask(app, requests.clear(second))
    assert not ask(app, requests.let_go(second))
    assert not ask(app, requests.renew(second))
    assert seen(app).state == "done"


def test_sent_again_after_a_lost_answer_it_is_the_same_run(app: Oncely) -> None:
    first = mark()
    begin(app, first)
    assert begin(app, first, again=True) is None
    assert begin(app, mark(), again=True) is not None, "another's run is not ours"
    assert ask(app, requests.done(first, CREATED))
    assert ask(app, requests.done(first, CREATED))


def test_a_key_is_remembered_from_its_end_on_and_then_free(app: Oncely) -> None:
    first = mark()
    begin(app, first)
    let_days_pass(app, 0.5)
    ask(app, requests.done(first, CREATED))
    let_days_pass(app, 0.9)
    assert ask(app, requests.prune(10)) == 0
    assert seen(app).state == "done"
    let_days_pass(app, 0.2)
    second = mark()
    assert begin(app, second, "another body") is None, "forgotten, though nobody pruned it"
    found = seen(app)
    assert (found.owner, found.state, found.status, found.body) == (
        second.owner,
        "in_flight",
        None,
        None,
    )
    assert not ask(app, requests.done(first, CREATED))


def test_pruning_takes_small_steps_and_only_what_is_forgotten(app: Oncely) -> None:
    for n in range(5):
        begin(app, mark(f"old:{n}"))
    let_days_pass(app, 2)
    begin(app, mark("new"))
    assert [ask(app, requests.prune(2)) for _ in range(4)] == [2, 2, 1, 0]
    assert sql(app, "select key from oncely.request") == [("new",)]


def test_a_worker_prunes_what_is_forgotten(app: Oncely) -> None:
    for n in range(150):
        begin(app, mark(f"old:{n}"))
    let_days_pass(app, 2)
    begin(app, mark("new"))

    async def run() -> None:
        worker = app.worker()

        async def watch() -> None:
            kept = [("?",)]
            while kept != [("new",)]:
                await asyncio.sleep(0.02)
                kept = await asyncio.to_thread(sql, app, "select key from oncely.request")
            worker.stop()

        await asyncio.gather(worker.arun(), watch())

    asyncio.run(run())


def leave(app: Oncely, key: str = "k", scope: str = "ann") -> Mark:
    """A request whose server is gone."""
    gone = mark(key, scope, hold_us=0)
    assert begin(app, gone) is None
    return gone


def test_those_in_doubt_are_listed_and_no_others(app: Oncely) -> None:
    assert app.requests_in_doubt() == []
    begin(app, mark("in flight"))
    done = mark("done")
    begin(app, done)
    ask(app, requests.done(done, CREATED))
    forgotten = mark("forgotten", hold_us=0, keep_us=0)
    begin(app, forgotten)
    leave(app, "first")
    leave(app, "second", scope="")
    failed = mark("failed")
    begin(app, failed)
    ask(app, requests.let_go(failed))
    found = app.requests_in_doubt()
    assert {(each.key, each.caller) for each in found} == {
        ("first", "ann"),
        ("second", ""),
        ("failed", "ann"),
    }
    for each in found:
        assert each.begun_at <= each.unknown_since < each.forgotten_at
    assert [each.key for each in app.requests_in_doubt(limit=1)] == ["first"]
    assert asyncio.run(app.arequests_in_doubt()) == found


@pytest.mark.parametrize(("body", "sent"), [({"charge": 7}, b'{"charge":7}'), (None, b"")])
def test_a_person_says_that_it_happened_and_what_its_client_is_told(
    app: Oncely, body: Any, sent: bytes
) -> None:
    late = leave(app)
    app.resolve_request("k", happened=True, status=201, body=body)
    assert app.requests_in_doubt() == []
    found = seen(app)
    assert (found.state, found.status, found.body) == ("done", 201, sent)
    # A server that was only slow does not overwrite what a client may have been told.
    assert not ask(app, requests.done(late, CREATED))
    assert seen(app) == found
    let_days_pass(app, 0.9)
    assert seen(app) == found
    let_days_pass(app, 0.2)
    assert begin(app, mark()) is None


def test_a_person_says_that_it_did_not_happen_and_the_next_runs(app: Oncely) -> None:
    late = leave(app)
    asyncio.run(app.aresolve_request("k", happened=False))
    assert begin(app, mark()) is None
    assert not ask(app, requests.done(late, CREATED))
    assert seen(app).state == "in_flight"


def test_the_caller_is_asked_for_only_if_there_are_several(app: Oncely) -> None:
    leave(app, scope="ann")
    leave(app, scope="")
    with pytest.raises(InvalidInput, match="'ann'"):
        app.resolve_request("k", happened=False)
    app.resolve_request("k", happened=False, caller="")
    assert [each.caller for each in app.requests_in_doubt()] == ["ann"]
    app.resolve_request("k", happened=False)
    assert app.requests_in_doubt() == []


def test_only_what_is_in_doubt_can_be_answered_for(app: Oncely) -> None:
    leave(app, "other")
    with pytest.raises(RequestNotFound, match="in doubt is: 'other'"):
        app.resolve_request("k", happened=False)
    running = mark()
    begin(app, running)
    with pytest.raises(RequestNotFound):
        app.resolve_request("k", happened=False)
    with pytest.raises(InProgress):
        app.resolve_request("k", happened=True, status=200, caller="ann")
    ask(app, requests.done(running, CREATED))
    with pytest.raises(RequestNotFound):
        app.resolve_request("k", happened=False, caller="ann")
    assert seen(app).body == CREATED.body


@pytest.mark.parametrize(
    "bad",
    [
        {"happened": 1},
        {"happened": True},
        {"happened": True, "status": 99},
        {"happened": True, "status": True},
        {"happened": True, "status": 200, "body": object()},
        {"happened": False, "status": 200},
        {"happened": False, "body": {}},
        {"happened": False, "caller": 7},
    ],
)
def test_answers_that_cannot_be(app: Oncely, bad: dict[str, Any]) -> None:
    leave(app)
    with pytest.raises(InvalidInput):
        app.resolve_request("k", **bad)
    with pytest.raises(InvalidInput):
        app.requests_in_doubt(limit=0)
    assert len(app.requests_in_doubt()) == 1


def test_an_answer_that_is_sent_again_is_the_same_answer(app: Oncely) -> None:
    leave(app)
    for again in (False, True):
        ask(app, requests.resolve("ann", "k", None, again=again))
    assert app.requests_in_doubt() == []
