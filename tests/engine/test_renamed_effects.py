"""An effect that was renamed in the handler: found by `was=`, and seen without it."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from oncely import Context, Event, Fence, LeaseLost, Oncely, Step
from oncely.flow.drive import drive
from oncely.flow.effect import Effects
from oncely.flow.protocol import Terms
from oncely.store import deliver
from tests.engine.stage import Stage, World
from tests.engine.steps import claim_one, counts, found, let_days_pass, sql, steal


def renamed(app: Oncely, job_id: str) -> list[tuple[str | None, list[str]]]:
    events = [event for event in app.explain(job_id) if event.what == "effect_renamed"]
    return [(event.effect, event.begun) for event in events]


def counted(app: Oncely) -> int:
    return sum(each.value for each in app.counters() if each.name == "oncely_effect_renamed_total")


@pytest.mark.parametrize("verb", ["step", "fence"])
def test_a_renamed_effect_runs_again_but_not_unseen(
    app: Oncely, stage: Stage, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    heard: list[Event] = []
    app.on_event(heard.append)

    def body(ctx: Context) -> Any:
        yield ctx.step("kept", world.do, "kept")
        name = "payment" if ctx.attempt == 1 else "charge"
        yield getattr(ctx, verb)(name, world.do, 49)
        if ctx.attempt < 3:
            raise ValueError("after the effect")

    stage.handler(body)
    with caplog.at_level(logging.WARNING, logger="oncely.worker"):
        job = stage.run()
    assert job.state == "completed"
    assert world.done == [("kept",), (49,), (49,)]
    assert renamed(app, job.job_id) == [("payment", ["charge"])]
    assert counted(app) == 1
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.oncely["outcome"] == "effect_renamed"  # type: ignore[attr-defined]
    assert warning.oncely["effect"] == "payment"  # type: ignore[attr-defined]
    assert [event.effect for event in heard if event.what == "effect_renamed"] == ["payment"]
    lines = str(app.explain(job.job_id)).splitlines()
    [told] = [line for line in lines if "effect_renamed" in line]
    assert "effect 'payment', on record and not asked for, began 'charge'" in told
    # In the delivery that began the new one, before its end.
    ends = [n for n, line in enumerate(lines) if "  retried" in line]
    assert ends[0] < lines.index(told) < ends[1]


def test_effects_that_are_asked_for_are_not_renamed(app: Oncely, stage: Stage) -> None:
    """One comes new in between, one is left out without anything new, and one was not done."""
    world = World()
    plan = {
        1: ["a", "b"],
        2: ["a", "new", "b"],
        3: ["a"],
        4: ["b", "a", "new"],
    }

    def body(ctx: Context) -> Any:
        for name in plan[ctx.attempt]:
            yield ctx.step(name, world.do, name)
        if ctx.attempt < 4:
            raise ValueError("again")

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed"
    assert (renamed(app, job.job_id), counted(app)) == ([], 0)
    assert len(world.done) == 3


def test_a_new_effect_that_was_not_done_is_not_a_new_name(app: Oncely, stage: Stage) -> None:
    def refuse() -> None:
        raise ConnectionRefusedError(111, "refused")

    def body(ctx: Context) -> Any:
        if ctx.attempt == 1:
            yield ctx.step("payment", str)
            raise ValueError("again")
        try:
            yield ctx.step("charge", refuse)
        except ConnectionRefusedError:
            pass
        yield None

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed"
    assert renamed(app, job.job_id) == []


def test_it_is_seen_after_a_worker_was_stopped_in_between(app: Oncely) -> None:
    """A job that was handed back has used no attempt: that it ran before is in the ledger only."""
    world = World()
    app.enqueue("k")
    first = claim_one(app)

    effects = Effects(first.job_id, first.fence, app._writes)
    drive(effects.perform(Terms("step", "payment", world.do)), app._engine)
    back = deliver.handed_back(first, tried=True)
    assert app._engine.run(lambda _: deliver.settle([back]), "transaction") == []

    @app.job("k")
    def handle(ctx: Context) -> None:
        assert ctx.attempt == 1
        ctx.step("charge", world.do)

    app.drain()
    assert found(app, first.job_id).state == "completed"
    assert renamed(app, first.job_id) == [("payment", ["charge"])]


@pytest.mark.parametrize("was", ["payment", ("payment",), ["first", "payment"]], ids=repr)
def test_an_effect_on_record_under_an_old_name_is_found(
    app: Oncely, stage: Stage, was: Any
) -> None:
    world = World()
    charge = Step("charge", was=was)
    first = was if isinstance(was, str) else was[0]

    def body(ctx: Context) -> Any:
        if ctx.attempt == 1:
            yield ctx.step("payment", world.do, 49)
            raise ValueError("after the effect")
        value = yield ctx.step(charge, world.do, 49)
        yield ctx.step("new", world.do)
        return [value, ctx.key(charge)]

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed", job.error
    assert job.result == [{"n": 1}, f"{job.job_id}:{first}"]
    assert world.done == [(49,), ()]
    assert (renamed(app, job.job_id), counted(app)) == ([], 0)
    found_done = [event.effect for event in app.explain(job.job_id) if event.boundary == "effect"]
    assert found_done == ["payment"]
    assert sorted(effect.name for effect in job.effects) == ["new", "payment"]


def test_new_jobs_begin_under_the_new_name(app: Oncely, stage: Stage) -> None:
    def body(ctx: Context) -> Any:
        yield ctx.step(Step("charge", was="payment"), str)
        yield ctx.fence(Fence("mail", was=["note", "letter"]), str)

    stage.handler(body)
    job = stage.run()
    assert sorted(effect.name for effect in job.effects) == ["charge", "mail"]


def test_the_new_name_goes_before_the_old_one(app: Oncely, stage: Stage) -> None:
    """Both are on record: it was renamed first, and `was=` came later."""
    world = World()
    names: list[Any] = ["payment", "charge", Step("charge", was="payment")]

    def body(ctx: Context) -> Any:
        value = yield ctx.step(names[ctx.attempt - 1], world.do)
        if ctx.attempt < 3:
            raise ValueError("again")
        return value

    stage.handler(body)
    assert stage.run().result == {"n": 2}


def test_a_step_begun_under_the_old_name_is_repeated_with_its_old_key(
    app: Oncely, stage: Stage
) -> None:
    world = World()
    charge = Step("charge", was="payment")

    def act(key: str) -> None:
        world.do(key)
        if len(world.done) == 1:
            raise TimeoutError("no answer")

    def body(ctx: Context) -> Any:
        effect: Any = "payment" if ctx.attempt == 1 else charge
        yield ctx.step(effect, act, ctx.key(effect))

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed"
    assert world.done == [(f"{job.job_id}:payment",)] * 2
    assert [(effect.name, effect.state) for effect in job.effects] == [("payment", "done")]


def test_a_held_fence_stays_held_under_its_old_name(app: Oncely, stage: Stage) -> None:
    renames = [False]

    def send() -> str:
        if not renames[0]:
            raise ValueError("who knows")
        return "sent again"

    def body(ctx: Context) -> Any:
        name: Any = Fence("mail", was="letter") if renames[0] else "letter"
        options: dict[str, Any] = {} if renames[0] else {"in_doubt": "retry"}
        return (yield ctx.fence(name, send, **options))

    stage.handler(body, retry=None)
    job = stage.run()
    assert job.state == "scheduled"
    renames[0] = True
    let_days_pass(app, 1)
    app.drain()
    job = found(app, job.job_id)
    assert (job.state, job.error["type"]) == ("in_doubt", "InDoubt")
    assert [(effect.name, effect.state) for effect in job.effects] == [("letter", "in_doubt")]
    app.resolve(job.job_id, "letter", happened=True, result="it came")
    app.drain()
    assert found(app, job.job_id).result == "it came"


def test_a_step_past_its_time_is_in_doubt_under_its_old_name(app: Oncely, stage: Stage) -> None:
    def fail() -> None:
        raise TimeoutError("no answer")

    def body(ctx: Context) -> Any:
        yield ctx.step(
            "payment" if ctx.attempt == 1 else Step("charge", was="payment"), fail, key_ttl=3600
        )

    stage.handler(body, retry=None)
    job = stage.run()
    let_days_pass(app, 1)
    app.drain()
    job = found(app, job.job_id)
    assert job.state == "in_doubt"
    assert [effect.name for effect in job.effects] == ["payment"]


CLASHES: dict[str, Callable[[Any], list[Any]]] = {
    "old first": lambda ctx: [
        lambda: ctx.step("payment", str),
        lambda: ctx.step(Step("charge", was="payment"), str),
    ],
    "new first": lambda ctx: [
        lambda: ctx.step(Step("charge", was="payment"), str),
        lambda: ctx.step("payment", str),
    ],
}


def test_an_old_name_belongs_to_one_effect(app: Oncely, stage: Stage) -> None:
    def body(ctx: Context) -> Any:
        for call in CLASHES[ctx.payload](ctx):
            yield call()

    stage.handler(body)
    for order in CLASHES:
        job = stage.run(order)
        assert (job.state, job.error["type"]) == ("failed", "InvalidInput")
        assert "an old name belongs to one effect" in job.error["message"]


def test_evidence_of_a_late_execution_counts_under_its_old_name(app: Oncely) -> None:
    """The old code is still in the middle of it when the new code comes to it."""

    app.enqueue("k")
    first = claim_one(app)
    second: list[Any] = []

    def send() -> str:
        second.append(steal(app))
        return "sent"

    effects = Effects(first.job_id, first.fence, app._writes)
    with pytest.raises(LeaseLost):
        drive(effects.perform(Terms("fence", "letter", send)), app._engine)
    later = Effects(first.job_id, second[0].fence, app._writes)
    terms = Terms("fence", "mail", send, was=("letter",))
    assert drive(later.perform(terms), app._engine) == "sent"
    assert len(second) == 1
    assert counts(app)["lease"] == 1
    assert sql(app, "select name, state from oncely.effect") == [("letter", "done")]
