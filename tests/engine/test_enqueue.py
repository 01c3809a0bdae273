"""Enqueue: every option is stored as it was given, and the receipt says what happened."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from oncely import InvalidInput, Job, NewJob, Oncely, Receipt
from oncely.model.job import Options
from tests.engine.steps import counts, found

MIB = 1024 * 1024


class Address(msgspec.Struct):
    street: str
    zip: str | None = None


class Order(pydantic.BaseModel):
    id: UUID
    cents: int


def look(app: Oncely, receipt: Receipt) -> Job:
    job = found(app, receipt.job_id)
    assert job.job_id == receipt.job_id
    return job


def test_a_job_with_no_options_waits_in_the_default_queue(app: Oncely) -> None:
    before = datetime.now(UTC)
    receipt = app.enqueue("order.charge")
    after = datetime.now(UTC)
    assert receipt.inserted
    assert receipt.state == "pending"
    assert UUID(receipt.job_id).version == 7
    job = look(app, receipt)
    tolerance = timedelta(milliseconds=2)  # SQLite's clock shows milliseconds
    assert before - tolerance <= job.created_at <= after + tolerance
    assert job == Job(
        job_id=receipt.job_id,
        kind="order.charge",
        queue="default",
        state="pending",
        payload=None,
        result=None,
        error=None,
        priority=0,
        attempt=0,
        max_attempts=None,
        timeout=None,
        idempotency_key=None,
        unique_key=None,
        group_key=None,
        tags=[],
        created_at=job.created_at,
        due_at=job.created_at,
        ended_at=None,
        executions=[],
    )


def test_every_option_is_stored_and_read_back(app: Oncely) -> None:
    moment = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    receipt = app.enqueue(
        "order.charge",
        {"order_id": "9482"},
        queue="payments",
        priority=-7,
        run_at=moment,
        unique_key="order:9482",
        idempotency_key="order:9482:charge",
        group_key="tenant:5",
        max_attempts=3,
        timeout=12.5,
        tags=["vip", "ünï 🎉", "vip"],
    )
    assert receipt == Receipt(receipt.job_id, True, "scheduled")
    job = look(app, receipt)
    assert job.state == "scheduled"
    assert job.payload == {"order_id": "9482"}
    assert job.queue == "payments"
    assert job.priority == -7
    assert job.due_at == moment
    assert job.unique_key == "order:9482"
    assert job.idempotency_key == "order:9482:charge"
    assert job.group_key == "tenant:5"
    assert job.max_attempts == 3
    assert job.timeout == 12.5
    assert job.tags == ["vip", "ünï 🎉", "vip"]


@pytest.mark.parametrize(
    ("options", "field", "expected"),
    [
        ({"priority": 32_767}, "priority", 32_767),
        ({"priority": -32_768}, "priority", -32_768),
        ({"max_attempts": 1}, "max_attempts", 1),
        ({"max_attempts": 20}, "max_attempts", 20),
        ({"timeout": 0.001}, "timeout", 0.001),
        ({"timeout": 30}, "timeout", 30.0),
        ({"timeout": timedelta(minutes=1)}, "timeout", 60.0),
        ({"timeout": 604_800}, "timeout", 604_800.0),
        ({"tags": ()}, "tags", []),
        ({"tags": ("a",)}, "tags", ["a"]),
        ({"tags": [str(n) for n in range(50)]}, "tags", [str(n) for n in range(50)]),
        ({"queue": "a" * 128}, "queue", "a" * 128),
        ({"queue": "_x.y:z-0"}, "queue", "_x.y:z-0"),
        ({"group_key": "g" * 255}, "group_key", "g" * 255),
        ({"unique_key": "🔑" * 255}, "unique_key", "🔑" * 255),
        ({"idempotency_key": "🔑" * 255}, "idempotency_key", "🔑" * 255),
        ({"idempotency_key": "'; drop table job; --"}, "idempotency_key", "'; drop table job; --"),
        ({"unique_key": '"\\u0000 %s {} $1 :doc'}, "unique_key", '"\\u0000 %s {} $1 :doc'),
    ],
    ids=lambda value: "" if isinstance(value, dict) else ascii(value)[:12],
)
def test_options_at_their_limits(
    shared_app: Oncely, options: Options, field: str, expected: object
) -> None:
    job = look(shared_app, shared_app.enqueue("k", **options))
    assert getattr(job, field) == expected


@pytest.mark.parametrize(
    "payload",
    [
        None,
        False,
        0,
        "",
        "nul \0 and \x01, quote \" and ' and \\ and \\u0000 and % and %s and :x and $1 and {}",
        {"\0": ["\0", {"\0\0": "\u2028"}]},
        "🎉 \N{GRINNING FACE} é e\N{COMBINING ACUTE ACCENT} \uffff \U0010ffff",
        [2**53 + 1, 2**64, -(10**40), 1e300, 0.1, -0.0],
        {"a": None, "b": [True, False, None, {}], "": ""},
        [],
        {},
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_a_payload_comes_back_as_it_went_in(
    shared_app: Oncely, request: pytest.FixtureRequest, payload: Any
) -> None:
    app, key = shared_app, ascii(request.node.name)
    plain = look(app, app.enqueue("k", payload))
    keyed = look(app, app.enqueue("k", payload, idempotency_key=key, unique_key=key))
    [many] = app.enqueue_many([NewJob("k", payload)]).receipts
    for job in (plain, keyed, look(app, many)):
        assert job.payload == payload
        assert type(job.payload) is type(payload)


def test_structured_payloads_are_stored_as_json(shared_app: Oncely) -> None:
    order = Order(id=UUID(int=5), cents=4999)
    receipt = shared_app.enqueue("k", {"order": order, "to": Address("A1"), 7: {1}})
    assert look(shared_app, receipt).payload == {
        "order": {"id": "00000000-0000-0000-0000-000000000005", "cents": 4999},
        "to": {"street": "A1", "zip": None},
        "7": [1],
    }


def test_the_payload_may_be_exactly_as_large_as_the_limit(app: Oncely) -> None:
    largest = "x" * (MIB - 2)
    assert look(app, app.enqueue("k", largest, idempotency_key="large")).payload == largest
    before = counts(app)
    with pytest.raises(InvalidInput, match=r"1,048,577 bytes of JSON, more than the 1,048,576"):
        app.enqueue("k", largest + "x")
    with pytest.raises(InvalidInput, match="1,048,578 bytes"):
        app.enqueue("k", "ü" * (MIB // 2))
    assert counts(app) == before


def test_the_payload_limit_can_be_set(url: str) -> None:
    with Oncely(url, max_payload_bytes=10) as app:
        app.migrate()
        assert app.enqueue("k", "x" * 8).inserted
        with pytest.raises(InvalidInput, match="11 bytes"):
            app.enqueue("k", "x" * 9)


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (0.5, timedelta(milliseconds=500)),
        (60, timedelta(minutes=1)),
        (0.000001, timedelta(microseconds=1)),
        (timedelta(days=400, microseconds=3), timedelta(days=400, microseconds=3)),
        (100 * 366 * 86_400, timedelta(days=36_600)),
    ],
)
def test_a_delay_is_counted_from_the_moment_of_enqueue(
    shared_app: Oncely, delay: float | timedelta, expected: timedelta
) -> None:
    receipt = shared_app.enqueue("k", delay=delay)
    assert receipt.state == "scheduled"
    job = look(shared_app, receipt)
    assert job.due_at - job.created_at == expected


@pytest.mark.parametrize("delay", [0, 0.0, -0.0, timedelta(0), None, 1e-9])
def test_no_delay_is_pending_at_once(shared_app: Oncely, delay: Any) -> None:
    receipt = shared_app.enqueue("k", delay=delay)
    assert receipt.state == "pending"
    job = look(shared_app, receipt)
    assert (job.state, job.due_at) == ("pending", job.created_at)


def test_a_moment_in_the_past_is_pending(shared_app: Oncely) -> None:
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    receipt = shared_app.enqueue("k", run_at=moment)
    assert receipt.state == "pending"
    assert look(shared_app, receipt).due_at == moment


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("run_at", "utc"),
    [
        # The last Sunday of October 2040, when 02:30 comes twice.
        (
            datetime(2040, 10, 28, 2, 30, fold=0, tzinfo=BERLIN),
            datetime(2040, 10, 28, 0, 30, tzinfo=UTC),
        ),
        (
            datetime(2040, 10, 28, 2, 30, fold=1, tzinfo=BERLIN),
            datetime(2040, 10, 28, 1, 30, tzinfo=UTC),
        ),
        # The last Sunday of March 2035, when 02:30 does not come at all.
        (
            datetime(2035, 3, 25, 2, 30, fold=0, tzinfo=BERLIN),
            datetime(2035, 3, 25, 1, 30, tzinfo=UTC),
        ),
        (
            datetime(2035, 7, 1, 12, tzinfo=ZoneInfo("Asia/Kathmandu")),
            datetime(2035, 7, 1, 6, 15, tzinfo=UTC),
        ),
        (
            datetime(2035, 1, 1, 1, 1, 1, 999_999, tzinfo=timezone(-timedelta(hours=9, seconds=1))),
            datetime(2035, 1, 1, 10, 1, 2, 999_999, tzinfo=UTC),
        ),
        (datetime(2300, 1, 1, 0, 0, 0, 123_457, tzinfo=UTC), None),
        (datetime.max.replace(tzinfo=UTC), None),
        (datetime.min.replace(tzinfo=UTC) + timedelta(microseconds=1), None),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), None),
    ],
    ids=lambda value: value.isoformat() if isinstance(value, datetime) else "same",
)
def test_run_at_is_kept_to_the_microsecond_in_any_time_zone(
    shared_app: Oncely, run_at: datetime, utc: datetime | None
) -> None:
    job = look(shared_app, shared_app.enqueue("k", run_at=run_at))
    assert job.due_at == (utc or run_at)
    assert job.due_at.utcoffset() == timedelta(0)


def test_ids_rise_in_the_order_of_the_calls(app: Oncely) -> None:
    ids = [app.enqueue("k", n).job_id for n in range(20)]
    ids += [receipt.job_id for receipt in app.enqueue_many(NewJob("k") for _ in range(20)).receipts]
    ids += [app.enqueue("k").job_id]
    assert ids == sorted(ids)
    assert [job.job_id for job in app.jobs()] == ids[::-1]


def test_jobs_without_keys_are_never_taken_for_repeats(app: Oncely) -> None:
    receipts = [app.enqueue("k", {"same": 1}) for _ in range(5)]
    assert all(receipt.inserted for receipt in receipts)
    assert len({receipt.job_id for receipt in receipts}) == 5


@pytest.mark.anyio
async def test_aenqueue_takes_the_same_options(app: Oncely) -> None:
    moment = datetime(2031, 5, 6, tzinfo=UTC)
    receipt = await app.aenqueue(
        "order.charge",
        {"a": "\0"},
        queue="payments",
        priority=1,
        run_at=moment,
        unique_key="u",
        idempotency_key="i",
        group_key="g",
        max_attempts=2,
        timeout=5,
        tags=["t"],
    )
    assert receipt == Receipt(receipt.job_id, True, "scheduled")
    job = await app.aget(receipt.job_id)
    assert job is not None
    assert job == app.get(receipt.job_id)
    assert (job.queue, job.priority, job.due_at) == ("payments", 1, moment)
    assert (job.unique_key, job.idempotency_key, job.group_key) == ("u", "i", "g")
    assert (job.max_attempts, job.timeout, job.tags, job.payload) == (2, 5.0, ["t"], {"a": "\0"})
    repeat = await app.aenqueue("order.charge", {"a": "\0"}, queue="payments", idempotency_key="i")
    assert repeat == Receipt(receipt.job_id, False, "scheduled")


@pytest.mark.anyio
async def test_aenqueue_many_gives_positional_receipts(app: Oncely) -> None:
    jobs = [NewJob("k", n, unique_key=f"u{n % 3}") for n in range(6)]
    receipts = await app.aenqueue_many(jobs)
    assert (receipts.inserted, receipts.skipped) == (3, 3)
    ids = [receipt.job_id for receipt in receipts.receipts]
    assert ids[:3] == ids[3:]
    assert (await app.aenqueue_many([])).receipts == []


def test_a_newjob_takes_the_options_of_enqueue() -> None:
    assert set(Options.__annotations__) == set(NewJob.__struct_fields__) - {"kind", "payload"}


def test_an_unknown_option_is_an_error(app: Oncely) -> None:
    with pytest.raises(TypeError, match="dealy"):
        app.enqueue("k", dealy=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="dealy"):
        NewJob("k", dealy=5)  # type: ignore[call-arg]
    assert app.jobs() == []
