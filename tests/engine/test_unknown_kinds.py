"""Jobs of a kind that no worker knows: they wait, and that is told."""

import logging

import pytest

from oncely import NewJob, Oncely
from oncely.store.engine import Finding
from tests.engine.steps import let_days_pass


def handlers(app: Oncely) -> Finding:
    [finding] = [each for each in app.examine() if each.name == "handlers"]
    return finding


def test_a_kind_without_a_handler_is_told_once(
    app: Oncely, caplog: pytest.LogCaptureFixture
) -> None:
    app.enqueue_many([NewJob("a"), NewJob("a"), NewJob("b", group_key="g")])
    with caplog.at_level(logging.WARNING, "oncely.worker"):
        assert app.drain() == 3
    told = [record.getMessage() for record in caplog.records]
    waits = "no handler for this kind: its jobs wait for a worker that has one kind="
    assert sorted(line for line in told if line.startswith(waits)) == [f"{waits}a", f"{waits}b"]
    left = "drain left jobs without a handler kind="
    said = sorted(line for line in told if line.startswith(left))
    assert said == [f"{left}a jobs=2", f"{left}b jobs=1"]


def test_the_doctor_names_kinds_without_a_handler(app: Oncely) -> None:
    app.enqueue_many(
        [NewJob("a", queue="one"), NewJob("a", priority=3), NewJob("b", group_key="g")]
    )
    app.enqueue("other")
    app.job("other")(lambda ctx: None)
    assert handlers(app).status == "ok"
    app.drain()
    finding = handlers(app)
    assert finding.status == "warning"
    assert "'a' (2 jobs), 'b' (1 jobs)." in finding.detail
    app.job("a")(lambda ctx: None)
    app.job("b")(lambda ctx: None)
    let_days_pass(app, 1)
    assert "'a' (2 jobs)" in handlers(app).detail
    assert app.drain() == 3
    assert handlers(app).status == "ok"
