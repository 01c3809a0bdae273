"""What executions write into the ledger together: each gets the answer to its own."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from oncely import LeaseLost, Oncely
from oncely.model.effect import Entry
from oncely.model.errors import StoreError
from oncely.store import deliver, effects
from oncely.store.claim import Claimed, Fence
from oncely.store.effects import Effect, Evidence, Recorded
from tests.engine.steps import claim_one, sql


def held(app: Oncely, queue: str) -> Claimed:
    app.enqueue("k", queue=queue)
    return claim_one(app, queue)


def effect(claimed: Claimed, name: str = "send", *, fence: Fence | None = None) -> Effect:
    return Effect(claimed.job_id, fence or claimed.fence, name, "fence", "1", "[]")


def begin(app: Oncely, *intents: Effect, again: bool = False) -> list[Any]:
    return app._engine.run(lambda _: effects.begin_all(intents, again=again), "write")


def done(app: Oncely, *known: Evidence) -> list[Recorded | None]:
    return app._engine.run(lambda _: effects.done_all(known), "transaction")


def kept(app: Oncely) -> set[tuple[Any, ...]]:
    found = sql(app, "select job_id, name, state, source, result from oncely.effect")
    return {
        (str(id), name, state, source, str(result)) for id, name, state, source, result in found
    }


def counted(app: Oncely) -> int:
    [(n,)] = sql(app, "select coalesce(sum(n), 0) from oncely.tally where name = 'effects'")
    return int(n)


def test_each_of_a_group_is_begun_or_told_why_not(app: Oncely) -> None:
    new, known, lost = (held(app, queue) for queue in ("new", "known", "lost"))
    was_begun, was_done = effect(known, "begun"), effect(known, "done")
    assert begin(app, was_begun, was_done) == [None, None]
    done(app, Evidence(was_done, "returned", "1"))
    late = effect(lost, fence=Fence(lost.fence.epoch, lost.fence.nonce + 1))
    first, late_answer, begun, ended, last = begin(
        app, effect(new), late, was_begun, was_done, effect(new, "other")
    )
    assert (first, last) == (None, None)
    assert isinstance(late_answer, LeaseLost)
    assert isinstance(begun, Entry)
    assert (begun.state, begun.epoch) == ("begun", known.fence.epoch)
    assert isinstance(ended, Entry)
    assert (ended.state, ended.source, ended.result) == ("done", "returned", "1")
    assert {(name, state) for _, name, state, _, _ in kept(app)} == {
        ("send", "begun"), ("other", "begun"), ("begun", "begun"), ("done", "done"),
    }  # fmt: skip
    assert {id for id, name, *_ in kept(app) if name == "send"} == {new.job_id}


def test_who_does_not_hold_the_job_is_told_so_beside_one_who_does(app: Oncely) -> None:
    """Under one name: that the other's was written says nothing of this one's."""
    one = held(app, "q")
    late = effect(one, fence=Fence(one.fence.epoch - 1, one.fence.nonce))
    refused, begun = begin(app, late, effect(one))
    assert isinstance(refused, LeaseLost)
    assert begun is None


def test_an_id_in_another_form_is_not_taken_for_begun(app: Oncely) -> None:
    """What is not told of was written, so what is told of must be known for it."""
    one = held(app, "q")
    assert begin(app, effect(one)) == [None]
    shouted = msgspec.structs.replace(effect(one), id=one.job_id.upper())
    with suppress(StoreError):
        [answer] = begin(app, shouted)
        assert isinstance(answer, LeaseLost | Entry)


def test_what_was_sent_before_is_its_own(app: Oncely) -> None:
    one = held(app, "q")
    assert begin(app, effect(one)) == [None]
    assert begin(app, effect(one), again=True) == [None]
    [entry] = begin(app, effect(one))
    assert isinstance(entry, Entry)


def test_a_group_is_recorded_as_it_was_told(app: Oncely) -> None:
    several = [effect(held(app, f"q{n}")) for n in range(3)]
    begin(app, *several)
    known = [Evidence(each, "returned", f"{n}") for n, each in enumerate(several)]
    for answer in done(app, *known):
        assert answer is None or answer.held
    assert kept(app) == {
        (each.id, "send", "done", "returned", str(n)) for n, each in enumerate(several)
    }
    assert counted(app) == 3


@pytest.mark.parametrize("which", ["lost", "known", "not begun"])
def test_one_that_is_not_as_the_others_changes_nothing_for_them(app: Oncely, which: str) -> None:
    usual, odd = held(app, "usual"), held(app, "odd")
    begin(app, effect(usual), *([effect(odd)] if which != "not begun" else []))
    if which == "lost":
        back = deliver.handed_back(odd, tried=True)
        assert app._engine.run(lambda _: deliver.settle([back]), "transaction") == []
    if which == "known":
        done(app, Evidence(effect(odd), "verified", "7"))
    before = counted(app)
    answers = done(
        app, Evidence(effect(usual), "returned", "1"), Evidence(effect(odd), "returned", "2")
    )
    assert answers[0] is not None
    assert answers[1] is not None
    assert (answers[0].held, answers[0].entry.result) == (True, "1")
    assert answers[1].held == (which != "lost")
    assert answers[1].entry.result == ("7" if which == "known" else "2")
    assert counted(app) - before == (1 if which == "known" else 2)
    assert {state for _, _, state, _, _ in kept(app)} == {"done"}
