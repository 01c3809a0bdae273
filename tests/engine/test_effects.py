"""Effects: the verbs of the ledger, in `async def` and `def` handlers alike."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from oncely import (
    Context,
    EffectMismatch,
    EffectNotFound,
    InDoubt,
    InvalidInput,
    Job,
    JobNotFound,
    LeaseLost,
    Nack,
    Oncely,
    Retry,
)
from tests.engine.stage import Stage, World
from tests.engine.steps import found, let_days_pass, sql

Body = Callable[..., Any]


def states(app: Oncely, job: Job) -> dict[str, str]:
    rows = sql(app, "select name, state from oncely.effect where job_id = :id", id=job.job_id)
    return dict(rows)


def test_a_step_is_done_once_and_its_result_comes_back(app: Oncely, stage: Stage) -> None:
    world = World()

    def body(ctx: Context) -> Any:
        value = yield ctx.step("charge", world.do, 49, "eur")
        stage.seen.append(value)
        if ctx.attempt < 3:
            raise ValueError("after the effect")
        return value

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed"
    assert world.done == [(49, "eur")]
    assert stage.seen == [{"n": 1}] * 3
    assert job.result == {"n": 1}
    assert states(app, job) == {"charge": "done"}


def test_a_step_that_failed_is_repeated_under_the_same_key(app: Oncely, stage: Stage) -> None:
    keys = []

    def send(key: str) -> str:
        keys.append(key)
        if len(keys) < 3:
            raise TimeoutError("no answer")
        return "sent"

    def body(ctx: Context) -> Any:
        return (yield ctx.step("mail", send, ctx.key("mail")))

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.result) == ("completed", "sent")
    assert keys == [f"{job.job_id}:mail"] * 3


def test_a_step_past_its_key_ttl_is_in_doubt(app: Oncely, stage: Stage) -> None:
    world = World()

    def body(ctx: Context) -> Any:
        if ctx.attempt == 1:
            yield ctx.step("charge", _boom, key_ttl=3600)
        return (yield ctx.step("charge", world.do, key_ttl=3600))

    stage.handler(body, retry=Retry(base=60, backoff="fixed", jitter=False))
    receipt = app.enqueue("k")
    app.drain()
    let_days_pass(app, 1)
    sql(app, f"update oncely.effect set begun_at = {_earlier(app)}")
    app.drain()
    job = found(app, receipt.job_id)
    assert job.state == "in_doubt"
    assert "remembers its key" in job.error["message"]
    assert world.done == []
    app.resolve(job.job_id, "charge", happened=False)
    let_days_pass(app, 1)
    app.drain()
    assert found(app, receipt.job_id).state == "completed"
    assert world.done == [()]


def _earlier(app: Oncely) -> str:
    if app.url.startswith("postgres"):
        return "begun_at - interval '1 day'"
    return "begun_at - 86400000000"


def _boom(*_: Any) -> None:
    raise TimeoutError("no answer")


def test_a_fence_whose_end_is_not_known_holds_the_job(app: Oncely, stage: Stage) -> None:
    world = World()

    def send(address: str) -> None:
        world.do(address)
        raise TimeoutError("no answer")

    def body(ctx: Context) -> Any:
        return (yield ctx.fence("welcome", send, "a@example.org"))

    stage.handler(body)
    job = stage.run()
    assert job.state == "in_doubt"
    assert states(app, job) == {"welcome": "in_doubt"}
    assert app.drain() == 0
    assert world.done == [("a@example.org",)]
    app.resolve(job.job_id, "welcome", happened=True, result="delivered", note="seen in the log")
    assert found(app, job.job_id).state == "pending"
    app.drain()
    job = found(app, job.job_id)
    assert (job.state, job.result, job.attempt) == ("completed", "delivered", 1)
    assert world.done == [("a@example.org",)]
    [(happened, by, note)] = sql(app, "select happened, by_whom, note from oncely.resolution")
    assert (bool(happened), note) == (True, "seen in the log")
    assert by


def test_a_person_says_that_it_did_not_happen(app: Oncely, stage: Stage) -> None:
    world = World()

    def body(ctx: Context) -> Any:
        first = not ctx.epoch or not world.done
        world.do()
        return (yield ctx.fence("welcome", _boom if first else world.do))

    stage.handler(body)
    job = stage.run()
    assert job.state == "in_doubt"
    app.resolve(job.job_id, "welcome", happened=False, by="ann")
    app.drain()
    assert found(app, job.job_id).state == "completed"


@pytest.mark.parametrize("found_there", [None, False, "mail 7"])
def test_verify_decides(app: Oncely, stage: Stage, found_there: Any) -> None:
    world = World()
    asked = []

    def verify(*args: Any) -> Any:
        asked.append(args)
        return found_there

    def body(ctx: Context) -> Any:
        send = _boom if ctx.attempt == 1 else world.do
        return (yield ctx.fence("welcome", send, "ann", verify=verify))

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed"
    assert asked == [("ann",)]
    if found_there == "mail 7":
        assert (job.result, world.done) == ("mail 7", [])
    else:
        assert world.done == [("ann",)]


@pytest.mark.parametrize(("policy", "times"), [("retry", 1), ("assume_done", 0)])
def test_doubt_is_dealt_with_as_declared(
    app: Oncely, stage: Stage, policy: Any, times: int
) -> None:
    world = World()

    def body(ctx: Context) -> Any:
        send = _boom if ctx.attempt == 1 else world.do
        return (yield ctx.fence("welcome", send, in_doubt=policy))

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed"
    assert len(world.done) == times


class Refused(Exception):
    pass


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(111, "Connection refused"), Refused("the account is closed")],
    ids=["refused", "known"],
)
def test_an_error_that_proves_that_nothing_happened_clears_the_intent(
    app: Oncely, stage: Stage, error: Exception
) -> None:
    world = World()

    def send() -> Any:
        if not world.done:
            world.do("tried")
            raise error
        return world.do("sent")

    def body(ctx: Context) -> Any:
        return (yield ctx.fence("welcome", send, not_done=(Refused,)))

    stage.handler(body)
    job = stage.run()
    assert job.state == "completed"
    assert world.done == [("tried",), ("sent",)]


def test_doubt_cannot_be_swallowed(app: Oncely, stage: Stage) -> None:
    def body(ctx: Context) -> Any:
        try:
            yield ctx.fence("welcome", _boom)
        except TimeoutError:
            pass
        return "all is well"

    stage.handler(body)
    assert stage.run().state == "in_doubt"


def test_a_fence_that_fails_for_good_is_held_and_not_failed(app: Oncely, stage: Stage) -> None:
    def body(ctx: Context) -> Any:
        try:
            yield ctx.fence("welcome", _boom)
        except TimeoutError:
            raise Nack("give up", retryable=False) from None

    stage.handler(body)
    assert stage.run().state == "in_doubt"


def test_other_arguments_under_the_same_name_are_refused(app: Oncely, stage: Stage) -> None:
    world = World()

    def body(ctx: Context) -> Any:
        yield ctx.step("charge", world.do, ctx.attempt)
        raise ValueError("again")

    stage.handler(body, retry=Retry(max_attempts=2, base=0))
    job = stage.run()
    assert (job.state, job.error["type"]) == ("failed", "EffectMismatch")
    assert world.done == [(1,)]
    assert issubclass(EffectMismatch, Exception)


def test_the_same_name_twice_in_one_execution_is_refused(app: Oncely, stage: Stage) -> None:
    world = World()

    def body(ctx: Context) -> Any:
        yield ctx.step("charge", world.do)
        yield ctx.step("charge", world.do)

    stage.handler(body, retry=Retry(max_attempts=1))
    job = stage.run()
    assert (job.state, job.error["type"]) == ("failed", "InvalidInput")
    assert len(world.done) == 1


def test_a_result_that_cannot_be_kept_is_an_error_each_time(app: Oncely, stage: Stage) -> None:
    world = World()

    def send() -> object:
        world.do()
        return object()

    def body(ctx: Context) -> Any:
        return (yield ctx.step("charge", send))

    stage.handler(body, retry=Retry(max_attempts=3, base=0))
    job = stage.run()
    assert job.state == "failed"
    assert "happened and is recorded" in job.error["message"]
    assert len(world.done) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda ctx: ctx.step("", print),
        lambda ctx: ctx.step("a", 7),
        lambda ctx: ctx.step("a", print, key_ttl=0),
        lambda ctx: ctx.fence("a", print, in_doubt="maybe"),
    ],
    ids=["no name", "no function", "no time", "no policy"],
)
def test_bad_calls_are_refused(app: Oncely, stage: Stage, call: Body) -> None:
    def body(ctx: Context) -> Any:
        yield call(ctx)

    stage.handler(body, retry=Retry(max_attempts=1))
    job = stage.run()
    assert (job.state, job.error["type"]) == ("failed", "InvalidInput")
    assert states(app, job) == {}


def test_replay_keeps_the_ledger(app: Oncely, stage: Stage) -> None:
    world = World()
    broken = True

    def body(ctx: Context) -> Any:
        yield ctx.step("charge", world.do)
        if broken:
            raise Nack("no", retryable=False)

    stage.handler(body)
    job = stage.run()
    assert job.state == "failed"
    broken = False
    app.replay(job.job_id)
    app.drain()
    assert found(app, job.job_id).state == "completed"
    assert len(world.done) == 1


def test_an_async_function_in_a_def_handler_is_refused(app: Oncely) -> None:
    world = World()

    @app.job("k", retry=Retry(max_attempts=1))
    def handle(ctx: Context) -> None:
        ctx.step("charge", world.ado)

    job = found(app, app.enqueue("k").job_id)
    app.drain()
    assert found(app, job.job_id).error["type"] == "InvalidInput"
    assert world.done == []


@pytest.mark.parametrize("function", ["async def", "def", "lambda"])
def test_an_async_handler_takes_functions_of_every_form(app: Oncely, function: str) -> None:
    world = World()

    @app.job("k")
    async def handle(ctx: Context) -> Any:
        match function:
            case "async def":
                return await ctx.step("a", world.ado, 1)
            case "def":
                return await ctx.step("a", world.do, 1)
            case _:
                return await ctx.step("a", lambda n: world.ado(n), 1)

    job = app.enqueue("k")
    app.drain()
    assert found(app, job.job_id).result == {"n": 1}
    assert world.done == [(1,)]


def test_resolve_refuses_what_is_not_in_doubt(app: Oncely) -> None:
    job = app.enqueue("k")
    with pytest.raises(EffectNotFound):
        app.resolve(job.job_id, "charge", happened=True)
    with pytest.raises(JobNotFound):
        app.resolve("00000000-0000-7000-8000-000000000000", "charge", happened=True)
    with pytest.raises(InvalidInput):
        app.resolve(job.job_id, "charge", happened="yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        app.resolve(job.job_id, "charge", happened=False, result=3)
    assert sql(app, "select count(*) from oncely.resolution") == [(0,)]
    assert issubclass(InDoubt, Exception)


def test_a_late_execution_may_not_begin_an_effect(app: Oncely, stage: Stage) -> None:
    world = World()

    def body(ctx: Context) -> Any:
        app.cancel(ctx.job_id)
        try:
            yield ctx.step("charge", world.do)
        except LeaseLost as error:
            stage.seen.append(error)
            raise

    stage.handler(body)
    assert stage.run().state == "cancelled"
    assert world.done == []
    assert len(stage.seen) == 1


def test_evidence_of_a_late_execution_counts(app: Oncely, stage: Stage) -> None:
    """Its lease is lost in the middle of the effect: it may not go on, but it may say what it
    knows."""

    def send() -> str:
        [(job_id,)] = sql(app, "select job_id from oncely.effect")
        app.cancel(str(job_id))
        return "sent"

    def body(ctx: Context) -> Any:
        try:
            yield ctx.fence("welcome", send)
        except LeaseLost as error:
            stage.seen.append(error)
            raise

    stage.handler(body)
    job = stage.run()
    assert job.state == "cancelled"
    assert states(app, job) == {"welcome": "done"}
    assert len(stage.seen) == 1


def test_children_of_a_rerun_are_the_same(app: Oncely, stage: Stage) -> None:
    def body(ctx: Context) -> Any:
        for n in range(3):
            receipt = yield ctx.enqueue("child", {"n": n}, queue="other")
            stage.seen.append((receipt.job_id, receipt.inserted))
        if ctx.attempt == 1:
            raise ValueError("again")

    stage.handler(body)
    app.enqueue("k")
    app.worker(queues=["default"])
    asyncio.run(app.worker(queues=["default"]).drain())
    assert len(app.jobs(kind="child")) == 3
    assert [inserted for _, inserted in stage.seen] == [True] * 3 + [False] * 3
    assert [id for id, _ in stage.seen[:3]] == [id for id, _ in stage.seen[3:]]
