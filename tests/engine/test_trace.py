"""A trace goes through the store: from the enqueue, through the job, to its effects."""

import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from oncely import Context, Defer, KeyConflict, Nack, NewJob, Oncely, Retry
from oncely.flow.trace import carrying, current

KEPT = InMemorySpanExporter()
COMES_IN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> trace.Tracer:
    """A provider cannot be taken back, and the tests after these shall not pay for it."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(KEPT))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return provider.get_tracer("test")


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    KEPT.clear()
    yield
    KEPT.clear()


def spans() -> dict[str, ReadableSpan]:
    found = KEPT.get_finished_spans()
    named = {span.name: span for span in found}
    assert len(named) == len(found), [span.name for span in found]
    return named


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def told(span: ReadableSpan, name: str) -> object:
    return (span.attributes or {}).get(name)


def test_a_job_continues_the_trace_that_it_was_enqueued_in(
    app: Oncely, tracer: trace.Tracer
) -> None:
    @app.job("order.charge")
    async def charge(ctx: Context) -> None:
        await ctx.step("bank", lambda: inside.append(current()))
        await ctx.fence("mail", lambda: inside.append(current()))
        await ctx.enqueue("order.ship")

    inside: list[str | None] = []
    with tracer.start_as_current_span("request"):
        receipt = app.enqueue("order.charge")

    @app.job("order.ship")
    def ship(ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute("select 1")

    app.drain()
    found = spans()
    assert {span.context.trace_id for span in found.values() if span.context} == {
        found["request"].context.trace_id
    }
    tree = {
        "enqueue order.charge": "request",
        "execute order.charge": "enqueue order.charge",
        "step bank": "execute order.charge",
        "fence mail": "execute order.charge",
        "enqueue order.ship": "execute order.charge",
        "execute order.ship": "enqueue order.ship",
        "transaction": "execute order.ship",
    }
    assert {name: parent_of(found[name]) for name in tree} == {
        name: id_of(found[parent]) for name, parent in tree.items()
    }
    assert set(found) == {*tree, "request"}
    # What the functions call in turn belongs to their effect.
    assert [str(each).split("-")[2] for each in inside] == [
        f"{id_of(found[name]):016x}" for name in ("step bank", "fence mail")
    ]
    assert told(found["enqueue order.charge"], "messaging.message.id") == receipt.job_id
    assert told(found["execute order.charge"], "messaging.message.id") == receipt.job_id
    assert told(found["execute order.charge"], "messaging.destination.name") == "default"
    assert found["enqueue order.charge"].kind is SpanKind.PRODUCER
    assert found["execute order.charge"].kind is SpanKind.CONSUMER


def test_every_delivery_is_a_span_and_a_recorded_effect_is_told(
    app: Oncely, tracer: trace.Tracer
) -> None:
    @app.job("k", retry=Retry(base=0))
    def handler(ctx: Context) -> None:
        ctx.step("once", lambda: None)
        if ctx.attempt == 1:
            raise ConnectionError("the bank is asleep")

    with tracer.start_as_current_span("request") as request:
        app.enqueue("k")
    app.drain()
    found = KEPT.get_finished_spans()
    first, second = (span for span in found if span.name == "execute k")
    assert first.context is not None
    assert first.context.trace_id == request.get_span_context().trace_id
    assert first.parent == second.parent
    assert [told(span, "oncely.attempt") for span in (first, second)] == [1, 2]
    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description == "ConnectionError: the bank is asleep"
    assert second.status.status_code is StatusCode.UNSET
    steps = [span for span in found if span.name == "step once"]
    assert [told(span, "oncely.deduplicated") for span in steps] == [False, True]
    assert [parent_of(span) for span in steps] == [id_of(first), id_of(second)]


def _pay() -> None:
    raise ConnectionError("the bank is asleep")


@pytest.mark.parametrize("is_async", [True, False])
def test_the_exception_of_a_failed_attempt_is_in_its_span(
    app: Oncely, tracer: trace.Tracer, is_async: bool
) -> None:
    """With its type, its message and the lines where it was raised, in the span of the effect that
    raised it and in that of the execution."""
    if is_async:

        @app.job("k", retry=Retry(max_attempts=1))
        async def on_loop(ctx: Context) -> None:
            await ctx.step("pay", _pay)
    else:

        @app.job("k", retry=Retry(max_attempts=1))
        def in_thread(ctx: Context) -> None:
            ctx.step("pay", _pay)

    with tracer.start_as_current_span("request"):
        app.enqueue("k")
    app.drain()
    found = spans()
    for name in ("execute k", "step pay"):
        assert found[name].status.status_code is StatusCode.ERROR
        [event] = found[name].events
        attributes = event.attributes or {}
        assert event.name == "exception"
        assert attributes["exception.type"] == "ConnectionError"
        assert attributes["exception.message"] == "the bank is asleep"
        assert "in _pay" in str(attributes["exception.stacktrace"])


def test_a_refusal_is_recorded_and_a_defer_is_no_failure(app: Oncely, tracer: trace.Tracer) -> None:
    class Order(msgspec.Struct):
        id: int

    @app.job("typed")
    def typed(ctx: Context, order: Order) -> None: ...

    @app.job("refused")
    def refused(ctx: Context) -> None:
        raise Nack("no such account", retryable=False)

    @app.job("later")
    def later(ctx: Context) -> None:
        raise Defer(3600)

    with tracer.start_as_current_span("request"):
        app.enqueue("typed", {"id": "seven"})
        app.enqueue("refused")
        app.enqueue("later")
    app.drain()
    found = spans()
    told_of = {
        name: [str((event.attributes or {})["exception.type"]) for event in found[name].events]
        for name in ("execute typed", "execute refused", "execute later")
    }
    assert [kind.rpartition(".")[2] for kind in told_of["execute typed"]] == ["ValidationError"]
    assert [kind.rpartition(".")[2] for kind in told_of["execute refused"]] == ["Nack"]
    assert told_of["execute later"] == []
    assert found["execute later"].status.status_code is StatusCode.UNSET


def test_a_trace_is_not_part_of_what_a_key_stands_for(app: Oncely, tracer: trace.Tracer) -> None:
    app.job("k")(lambda ctx: None)
    with tracer.start_as_current_span("first") as request:
        first = app.enqueue("k", 1, idempotency_key="a")
    with tracer.start_as_current_span("second"):
        again = app.enqueue("k", 1, idempotency_key="a")
        with pytest.raises(KeyConflict):
            app.enqueue("k", 2, idempotency_key="a")
    assert (again.job_id, again.inserted) == (first.job_id, False)
    calls = [span for span in KEPT.get_finished_spans() if span.name == "enqueue k"]
    assert [told(span, "oncely.deduplicated") for span in calls] == [0, 1, None]
    assert [span.status.status_code for span in calls] == [StatusCode.UNSET] * 2 + [
        StatusCode.ERROR
    ]
    app.drain()
    run = spans_named("execute k")
    assert [span.context.trace_id for span in run if span.context] == [
        request.get_span_context().trace_id
    ]


def spans_named(name: str) -> list[ReadableSpan]:
    return [span for span in KEPT.get_finished_spans() if span.name == name]


def test_jobs_of_one_call_belong_to_one_span(app: Oncely, tracer: trace.Tracer) -> None:
    app.job("k")(lambda ctx: None)
    app.enqueue_many([NewJob("k", n) for n in range(3)])
    app.drain()
    [call] = spans_named("enqueue")
    assert told(call, "messaging.batch.message_count") == 3
    assert [parent_of(span) for span in spans_named("execute k")] == [id_of(call)] * 3


def test_a_defer_is_no_error(app: Oncely, tracer: trace.Tracer) -> None:
    @app.job("k")
    def handler(ctx: Context) -> None:
        raise Defer(60)

    app.enqueue("k")
    app.drain()
    run = spans()["execute k"]
    assert told(run, "oncely.ending") == "deferred"
    assert run.status.status_code is StatusCode.UNSET


def test_a_replay_stays_in_its_trace(app: Oncely, tracer: trace.Tracer) -> None:
    @app.job("k", retry=Retry(max_attempts=1))
    def handler(ctx: Context) -> None:
        raise ValueError

    receipt = app.enqueue("k")
    app.drain()
    app.replay(receipt.job_id)
    app.drain()
    first, second = spans_named("execute k")
    assert first.parent == second.parent is not None


@pytest.mark.parametrize("group_key", [None, "tenant"], ids=["plain", "grouped"])
def test_what_came_with_a_request_is_the_parent(
    app: Oncely, tracer: trace.Tracer, group_key: str | None
) -> None:
    app.job("k")(lambda ctx: None)
    with carrying(COMES_IN):
        app.enqueue("k", group_key=group_key)
    app.drain()
    found = spans()
    assert found["enqueue k"].parent is not None
    assert f"{found['enqueue k'].parent.span_id:016x}" in COMES_IN
    assert parent_of(found["execute k"]) == id_of(found["enqueue k"])


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        COMES_IN + "-more",
        COMES_IN + "\n",
    ],
)
def test_a_malformed_one_is_as_good_as_none(header: str) -> None:
    with carrying(header):
        assert current() is None
    with carrying(COMES_IN):
        assert current() == COMES_IN


PASSED_ON = """
import sys
from oncely import Oncely
from oncely.flow.trace import carrying, current

app = Oncely(sys.argv[1])

@app.job("parent")
async def parent(ctx):
    await ctx.enqueue("child")

@app.job("child")
def child(ctx):
    return ctx.step("look", current)

with carrying("{header}"):
    app.enqueue("parent")
app.enqueue("child", unique_key="none")
app.drain()
print(sorted(str(job.result) for job in app.jobs(kind="child")))
print("opentelemetry" in sys.modules)
"""


def test_without_opentelemetry_it_is_passed_on_as_it_came(app: Oncely) -> None:
    """To the jobs that a job makes, and to the receivers of pushed jobs, who may have it."""
    done = subprocess.run(
        [sys.executable, "-c", PASSED_ON.replace("{header}", COMES_IN), app.url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str([COMES_IN, "None"]), "False"]
