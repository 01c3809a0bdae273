"""For tests, and a plugin of pytest: run jobs, move the clock, look at what was enqueued, prove.

The plugin brings the fixtures `prove` and `oncely_clock`, the marker `prove`, and the option
`--oncely-prove`, which adds a test for each kind of an app.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pytest

from oncely.model.errors import InvalidInput
from oncely.model.job import Job
from oncely.prove.clock import let_pass_on_postgres, let_pass_on_sqlite
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.sqlite.engine import SqliteEngine
from oncely.surface.app import Oncely

if TYPE_CHECKING:
    from oncely.prove.report import Report

__all__ = ["Clock", "assert_enqueued", "drain", "run_twice"]
_UNSET: Final = object()
_ROUNDS: Final = 100


class Clock:
    """The clock of a store, as far as the store knows: what it remembers becomes older."""

    def __init__(self, app: Oncely) -> None:
        self._app = app

    def advance(self, seconds: float) -> None:
        """As if that much time had gone by since everything that happened so far."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
            raise InvalidInput(f"seconds is {seconds!r}; expected a number, 0 or more")
        engine = self._app._engine
        if isinstance(engine, PostgresEngine):
            let_pass_on_postgres(engine.url, engine.schema, seconds)
        elif isinstance(engine, SqliteEngine) and engine.path is not None:
            let_pass_on_sqlite(str(engine.path), seconds)
        else:
            raise InvalidInput("the clock of a store in memory or behind a server cannot be moved")


def drain(app: Oncely) -> int:
    """Run all jobs to their end, also those not due yet; how many executions there were."""
    clock = Clock(app)
    executions = 0
    for _ in range(_ROUNDS):
        executions += app.drain()
        waiting = app.jobs(state="scheduled", limit=10_000)
        if not waiting:
            return executions
        longest = max((job.due_at - job.created_at).total_seconds() for job in waiting)
        clock.advance(max(1.0, longest + 1))
    raise AssertionError(f"jobs are still waiting after {_ROUNDS} rounds: {waiting[:3]}")


def run_twice(app: Oncely, kind: str, payload: Any = None) -> Job:
    """Deliver one job twice, as when the answer to its settle is lost; the job as it stands then.

    Its handler runs twice in this process. What may happen between its lines is for `prove`.
    """
    receipt = app.enqueue(kind, payload, queue="oncely-run-twice", max_attempts=20)
    handler = app._registry.get(kind)
    if handler is None:
        raise InvalidInput(f"the app has no handler of kind {kind!r}")
    first = True

    async def end_without_settling(ctx: Any, call: Callable[[Any], Any]) -> Any:
        nonlocal first
        value = await call(ctx)
        if first and ctx.job_id == receipt.job_id:
            first = False
            raise _NotSettled
        return value

    app._middleware.append(end_without_settling)
    try:
        app.drain(queues=["oncely-run-twice"])
        job = app.get(receipt.job_id)
        while job is not None and job.state == "scheduled":
            Clock(app).advance(3600.0)
            app.drain(queues=["oncely-run-twice"])
            job = app.get(receipt.job_id)
    finally:
        app._middleware.remove(end_without_settling)
    assert job is not None
    return job


class _NotSettled(Exception):
    """The execution came to its end, and nobody heard of it."""


def assert_enqueued(app: Oncely, kind: str, payload: Any = _UNSET, *, count: int = 1) -> list[Job]:
    """That so many jobs of the kind, with that payload if one is given, were put in."""
    jobs = app.jobs(kind=kind, limit=10_000)
    found = [job for job in jobs if payload is _UNSET or job.payload == payload]
    if len(found) != count:
        others = "; ".join(f"{job.payload!r} ({job.state})" for job in jobs[:5]) or "none"
        wanted = "" if payload is _UNSET else f" with {payload!r}"
        raise AssertionError(
            f"{len(found)} jobs of kind {kind!r}{wanted} were enqueued, expected {count}; of this "
            f"kind there are: {others}"
        )
    return found


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "prove(budget_seconds=60, max_faults=2): how much the fixture `prove` tries in this test",
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("oncely")
    group.addoption(
        "--oncely-prove",
        metavar="MODULE:APP",
        help="prove every kind of this app, a test for each, as `oncely prove --all` does",
    )
    group.addoption(
        "--oncely-payloads",
        metavar="MODULE:NAME",
        help="a dict of kind and payload, or a function that gives one; without it, the last job "
        "of each kind in the store",
    )
    group.addoption(
        "--oncely-world", metavar="MODULE:NAME", help="what is compared, as prove(world=…) takes it"
    )


@pytest.hookimpl(tryfirst=True)  # so that -k and -m choose among these too
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    place = config.getoption("--oncely-prove")
    if place is not None:
        from oncely.prove.pytest_items import proof_items

        items += proof_items(session, place)


@pytest.fixture(name="prove")
def prove_fixture(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """`prove(app, kind, payload, world=[…])`: the test fails with the story if it is not proved."""
    marker = request.node.get_closest_marker("prove")
    defaults = dict(marker.kwargs) if marker else {}

    def check(*args: Any, **options: Any) -> Report:
        # Late: this plugin is loaded in every run of pytest, and most need no prover.
        from oncely.prove.explore import prove

        __tracebackhide__ = True
        report = prove(*args, **{**defaults, **options})
        if not report.ok:
            pytest.fail(str(report), pytrace=False)
        return report

    return check


@pytest.fixture
def oncely_clock() -> Callable[[Oncely], Clock]:
    """`oncely_clock(app).advance(seconds)`."""
    return Clock
