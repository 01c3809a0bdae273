"""A verb of the context that an async handler does not await fails the attempt."""

import asyncio
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from oncely import Cancel, Context, Defer, Job, Nack, Oncely, Retry
from tests.engine.steps import found, sql

ONCE = Retry(base=0, max_attempts=1)


@pytest.fixture(autouse=True)
def no_noise() -> Any:
    """Python has nothing to say about it besides."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def run(app: Oncely, handler: Callable[..., Any], **options: Any) -> Job:
    options.setdefault("retry", ONCE)
    app.job("k", **options)(handler)
    job_id = app.enqueue("k").job_id
    app.drain()
    return found(app, job_id)


def line_of(function: Callable[..., Any], text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    [number] = [n for n, line in enumerate(lines, first) if text in line]
    return f"{__file__}:{number}"


def test_a_step_without_await_fails_the_attempt(app: Oncely) -> None:
    done: list[int] = []

    async def handle(ctx: Context) -> None:
        ctx.step("charge", done.append, 1)

    job = run(app, handle)
    assert (job.state, job.error["type"]) == ("failed", "NotAwaited")
    place = line_of(handle, "ctx.step")
    assert f"nothing was done: ctx.step('charge') at {place}" in job.error["message"]
    assert (done, sql(app, "select * from oncely.effect")) == ([], [])


def test_every_verb_is_told_by_its_line(app: Oncely) -> None:
    async def handle(ctx: Context) -> Any:
        ctx.fence("mail", print)
        ctx.enqueue("child", 7)
        ctx.complete(tx=None)
        return ctx.step("charge", print)

    job = run(app, handle)
    assert job.error["type"] == "NotAwaited"
    for call in ("ctx.fence", "ctx.enqueue", "ctx.complete", "ctx.step"):
        assert line_of(handle, call) in job.error["message"]
    assert "ctx.enqueue('child')" in job.error["message"]
    assert app.jobs(kind="child") == []


def test_it_is_tried_again_and_never_completed(app: Oncely) -> None:
    async def handle(ctx: Context) -> str:
        step = ctx.step("charge", str, ctx.attempt)
        if ctx.attempt < 3:
            return "too early"
        await step
        return "charged"

    job = run(app, handle, retry=Retry(base=0, max_attempts=5))
    assert (job.state, job.attempt, job.result) == ("completed", 3, "charged")
    outcomes = [(each.outcome, each.error["type"]) for each in job.executions[:2]]
    assert outcomes == [("retried", "NotAwaited")] * 2


@pytest.mark.parametrize("verb", ["step", "fence"])
def test_a_task_that_is_not_over_fails_the_attempt(app: Oncely, verb: str) -> None:
    tasks = []
    begun, over = asyncio.Event(), asyncio.Event()

    async def act() -> None:
        begun.set()
        await over.wait()

    async def handle(ctx: Context) -> str:
        tasks.append(asyncio.create_task(getattr(ctx, verb)("charge", act)))
        await begun.wait()
        return "too early"

    async def scene() -> None:
        app.job("k", retry=ONCE)(handle)
        await app.aenqueue("k")
        await app.adrain()
        over.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scene())
    [listed] = app.jobs(kind="k")
    job = found(app, listed.job_id)
    error = job.executions[0].error
    told = error["message"]
    assert f"still running when the handler returned: ctx.{verb}('charge')" in told
    assert line_of(handle, "create_task") in told
    assert error["type"] == "NotAwaited"
    assert [effect.state for effect in job.effects] == ["done"]
    # What it knew of the fence came after the doubt, and ended it.
    assert job.state == ("failed" if verb == "step" else "pending")


def test_other_ends_do_not_hide_it(app: Oncely) -> None:
    errors = {"defer": Defer(0), "cancel": Cancel("no"), "error": ValueError("other")}

    @app.job("k", retry=ONCE)
    async def handle(ctx: Context, how: str) -> None:
        ctx.step("charge", print)
        raise errors[how]

    jobs = {how: app.enqueue("k", how).job_id for how in errors}
    app.drain()
    ends = {how: found(app, job_id).error for how, job_id in jobs.items()}
    assert [end["type"] for end in ends.values()] == ["NotAwaited", "NotAwaited", "ValueError"]
    assert all("ctx.step('charge')" in end["message"] for end in ends.values())


def test_what_goes_on_beside_an_error_is_no_mistake(app: Oncely) -> None:
    """`gather` leaves the others running when one of them raises."""

    async def slow() -> None:
        await asyncio.sleep(60)

    async def refuse() -> None:
        raise Nack("closed", retryable=False)

    async def handle(ctx: Context) -> None:
        await asyncio.gather(ctx.step("slow", slow), ctx.step("closed", refuse))

    job = run(app, handle)
    assert (job.state, job.error["type"], job.error["message"]) == ("failed", "Nack", "closed")


def test_awaited_in_any_way_is_awaited(app: Oncely) -> None:
    async def handle(ctx: Context) -> Any:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(ctx.step("one", int, 1))
        two = await asyncio.wait_for(ctx.step("two", int, 2), 60)
        [three] = await asyncio.gather(ctx.step("three", int, 3))
        await ctx.enqueue("child")
        ctx.step("unwanted", int).close()
        return [one.result(), two, three]

    job = run(app, handle)
    assert (job.state, job.result) == ("completed", [1, 2, 3])
