"""Bad input, a list: each gives one clear error and stores nothing."""

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from oncely import InvalidInput, NewJob, Oncely
from tests.engine.steps import counts

LIMIT: Final = "1 to 255"
NAMED: Final = "expected 1 to 128 letters, digits"
LOOP: list[Any] = []
LOOP.append(LOOP)

BAD_JOBS: Final[dict[str, tuple[dict[str, Any], str]]] = {
    # kind and queue
    "kind missing": ({"kind": ""}, f"kind is ''; {NAMED}"),
    "kind none": ({"kind": None}, f"kind is None; {NAMED}"),
    "kind not text": ({"kind": 5}, f"kind is 5; {NAMED}"),
    "kind bytes": ({"kind": b"k"}, f"kind is b'k'; {NAMED}"),
    "kind with a space": ({"kind": "order charge"}, f"kind is 'order charge'; {NAMED}"),
    "kind with a slash": ({"kind": "order/charge"}, "kind is 'order/charge'; expected"),
    "kind with a newline": ({"kind": "order\n"}, r"kind is 'order\n'; expected"),
    "kind with nul": ({"kind": "a\0"}, r"kind is 'a\x00'; expected"),
    "kind begins with a dot": ({"kind": ".order"}, "kind is '.order'; expected"),
    "kind not ascii": ({"kind": "größe"}, r"kind is 'gr\xf6\xdfe'; expected"),
    "kind too long": ({"kind": "k" * 129}, "kind is 'kkk"),
    "kind a huge int": ({"kind": 10**5000}, "kind is <int that cannot be shown>; expected"),
    "queue empty": ({"queue": ""}, f"queue is ''; {NAMED}"),
    "queue with a quote": ({"queue": "a'b"}, "queue is"),
    "queue too long": ({"queue": "q" * 129}, "queue is 'qqq"),
    # keys
    "idempotency key empty": (
        {"idempotency_key": ""},
        f"idempotency_key has 0 characters; expected {LIMIT}",
    ),
    "idempotency key too long": (
        {"idempotency_key": "x" * 256},
        f"idempotency_key has 256 characters; expected {LIMIT}",
    ),
    "idempotency key not text": (
        {"idempotency_key": 9482},
        f"idempotency_key is 9482; expected a string of {LIMIT}",
    ),
    "idempotency key false": (
        {"idempotency_key": False},
        "idempotency_key is False; expected a string",
    ),
    "idempotency key huge int": ({"idempotency_key": 10**5000}, "idempotency_key is <int"),
    "idempotency key blank": (
        {"idempotency_key": " "},
        "idempotency_key ' ' begins or ends with white space",
    ),
    "idempotency key with nul": (
        {"idempotency_key": "a\0b"},
        "idempotency_key 'a\\x00b' has a control character",
    ),
    "idempotency key surrogate": ({"idempotency_key": "a\ud800"}, "lone surrogate"),
    "unique key empty": ({"unique_key": ""}, f"unique_key has 0 characters; expected {LIMIT}"),
    "unique key too long": ({"unique_key": "x" * 256}, "unique_key has 256 characters"),
    "unique key list": ({"unique_key": ["a"]}, "unique_key is ['a']; expected a string"),
    "unique key newline": ({"unique_key": "a\nb"}, "control character"),
    "group key empty": ({"group_key": ""}, "group_key has 0 characters"),
    "group key not text": ({"group_key": 5}, "group_key is 5; expected a string"),
    "group key tab": ({"group_key": "a\tb"}, "group_key 'a\\tb' has a control character"),
    # numbers
    "priority text": (
        {"priority": "high"},
        "priority is 'high'; expected a whole number from -32768 to 32767",
    ),
    "priority float": ({"priority": 1.0}, "priority is 1.0; expected a whole number"),
    "priority bool": ({"priority": True}, "priority is True; expected a whole number"),
    "priority none": ({"priority": None}, "priority is None; expected a whole number"),
    "priority too high": ({"priority": 32_768}, "priority is 32768; expected a whole number"),
    "priority too low": ({"priority": -32_769}, "priority is -32769; expected"),
    "priority huge": ({"priority": 10**5000}, "priority is <int that cannot be shown>"),
    "attempts zero": (
        {"max_attempts": 0},
        "max_attempts is 0; expected a whole number from 1 to 20",
    ),
    "attempts too many": (
        {"max_attempts": 21},
        "max_attempts is 21; expected a whole number from 1 to 20",
    ),
    "attempts negative": ({"max_attempts": -1}, "max_attempts is -1; expected"),
    "attempts bool": ({"max_attempts": True}, "max_attempts is True; expected"),
    "attempts text": ({"max_attempts": "3"}, "max_attempts is '3'; expected"),
    "timeout zero": ({"timeout": 0}, "timeout is 0; expected more than 0 seconds"),
    "timeout negative": ({"timeout": -1}, "timeout is -1; expected seconds"),
    "timeout nan": ({"timeout": math.nan}, "timeout is nan; expected seconds"),
    "timeout infinite": ({"timeout": math.inf}, "timeout is inf; expected seconds"),
    "timeout too long": (
        {"timeout": 604_801},
        "timeout is 604801; expected seconds as a number or timedelta, from 0 to 604,800",
    ),
    "timeout text": ({"timeout": "30s"}, "timeout is '30s'; expected seconds"),
    "timeout bool": ({"timeout": True}, "timeout is True; expected seconds"),
    "timeout huge": ({"timeout": 10**400}, "timeout is 1000"),
    "delay negative": ({"delay": -0.1}, "delay is -0.1; expected seconds"),
    "delay negative timedelta": (
        {"delay": timedelta(seconds=-1)},
        "delay is -1.0; expected seconds",
    ),
    "delay nan": ({"delay": math.nan}, "delay is nan; expected seconds"),
    "delay infinite": ({"delay": math.inf}, "delay is inf; expected seconds"),
    "delay text": ({"delay": "5"}, "delay is '5'; expected seconds as a number or timedelta"),
    "delay bool": ({"delay": False}, "delay is False; expected seconds"),
    "delay over a century": ({"delay": 3_162_240_001}, "from 0 to 3,162,240,000"),
    "delay longest timedelta": (
        {"delay": timedelta.max},
        "delay is 86400000000000.0; expected seconds",
    ),
    "delay huge": ({"delay": 10**400}, "delay is 1000"),
    "delay huger": ({"delay": 10**5000}, "delay is <int that cannot be shown>"),
    # moments
    "run_at without zone": (
        {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001
        "run_at 2030-01-01T00:00:00 has no time zone",
    ),
    "run_at date": (
        {"run_at": date(2030, 1, 1)},
        "run_at is datetime.date(2030, 1, 1); expected a datetime with a time zone",
    ),
    "run_at text": (
        {"run_at": "2030-01-01T00:00:00Z"},
        "run_at is '2030-01-01T00:00:00Z'; expected a datetime",
    ),
    "run_at number": ({"run_at": 1_900_000_000}, "run_at is 1900000000; expected a datetime"),
    "run_at after the last year": (
        {"run_at": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))},
        "is not between the years 1 and 9999 in UTC",
    ),
    "run_at before the first year": (
        {"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))},
        "is not between the years 1 and 9999 in UTC",
    ),
    "delay and run_at": (
        {"delay": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)},
        "delay and run_at are both given; expected one of them",
    ),
    # tags
    "tags text": ({"tags": "vip"}, "tags is 'vip'; expected a list of strings"),
    "tags none": ({"tags": None}, "tags is None; expected a list of strings"),
    "tags number": ({"tags": 5}, "tags is 5; expected a list of strings"),
    "tags dict": ({"tags": {"a": 1}}, "tags is {'a': 1}; expected a list of strings"),
    "tag number": ({"tags": ["a", 5]}, "a tag is 5; expected a string"),
    "tag empty": ({"tags": [""]}, "a tag has 0 characters"),
    "tag too long": ({"tags": ["x" * 256]}, "a tag has 256 characters"),
    "tag surrogate": ({"tags": ["\udc00"]}, "lone surrogate"),
    "tags too many": (
        {"tags": [str(n) for n in range(51)]},
        "there are 51 tags; expected at most 50",
    ),
    # payload
    "payload object": (
        {"payload": object()},
        "the payload is not a JSON value: object cannot be written",
    ),
    "payload function": (
        {"payload": {"f": len}},
        "the payload is not a JSON value: builtin_function_or_method",
    ),
    "payload complex": ({"payload": [1j]}, "the payload is not a JSON value: complex"),
    "payload with tuple keys": ({"payload": {(1, 2): 3}}, "the payload is not a JSON value: tuple"),
    "payload nan": ({"payload": {"x": math.nan}}, "NaN or infinity, which JSON cannot express"),
    "payload infinite": ({"payload": [math.inf]}, "NaN or infinity, which JSON cannot express"),
    "payload surrogate": ({"payload": ["\ud83d"]}, r"lone surrogate ('\ud83d')"),
    "payload surrogate key": ({"payload": {"\ud83d": 1}}, "lone surrogate"),
    "payload too large": (
        {"payload": "x" * 2**20},
        "the payload is 1,048,578 bytes of JSON, more than the 1,048,576 allowed",
    ),
    "payload too deep": ({"payload": eval("[" * 65 + "]" * 65)}, "nested more than 64 levels deep"),
    "payload contains itself": ({"payload": LOOP}, "(or contains itself)"),
    "payload long int": ({"payload": 10**5000}, "4300 digits"),
}
"""What is wrong with the job, and what the error says of it."""


def arguments(options: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "k", "idempotency_key": "fine", "unique_key": "fine", **options}


@pytest.fixture(params=BAD_JOBS)
def bad(request: pytest.FixtureRequest) -> tuple[dict[str, Any], str]:
    options, said = BAD_JOBS[request.param]
    return arguments(options), said


@pytest.fixture
def unchanged(shared_app: Oncely) -> Iterator[Oncely]:
    before = counts(shared_app)
    yield shared_app
    assert counts(shared_app) == before


def is_clear(error: InvalidInput, said: str) -> None:
    text = str(error)
    assert said in text
    assert "\n" not in text
    assert len(text) < 600
    assert text.encode()
    assert isinstance(error, ValueError)


def test_enqueue_refuses(unchanged: Oncely, bad: tuple[dict[str, Any], str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        unchanged.enqueue(**bad[0])
    is_clear(caught.value, bad[1])
    assert "item" not in str(caught.value)


def test_aenqueue_refuses(unchanged: Oncely, bad: tuple[dict[str, Any], str]) -> None:
    async def call() -> None:
        await unchanged.aenqueue(**bad[0])

    with pytest.raises(InvalidInput) as caught:
        anyio.run(call)
    is_clear(caught.value, bad[1])


def test_enqueue_many_names_the_item_and_stores_none(
    unchanged: Oncely, bad: tuple[dict[str, Any], str]
) -> None:
    jobs = [NewJob("k", n, unique_key=f"u{n}", idempotency_key=f"i{n}") for n in range(3)]
    jobs.insert(2, NewJob(**bad[0]))
    with pytest.raises(InvalidInput) as caught:
        unchanged.enqueue_many(jobs)
    is_clear(caught.value, bad[1])
    assert str(caught.value).startswith("item 2: ")


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([NewJob("k"), {"kind": "k"}], "item 1 is dict; expected NewJob"),
        ([None], "item 0 is NoneType; expected NewJob"),
        ("abc", "item 0 is str; expected NewJob"),
        ([NewJob("k"), ("k", 1)], "item 1 is tuple; expected NewJob"),
        (None, "jobs is None; expected"),
        (5, "jobs is 5; expected"),
        (NewJob("k"), "jobs is NewJob("),
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_enqueue_many_refuses_what_is_not_a_list_of_jobs(
    unchanged: Oncely, jobs: Any, said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        unchanged.enqueue_many(jobs)
    is_clear(caught.value, said)

    async def call() -> None:
        await unchanged.aenqueue_many(jobs)

    with pytest.raises(InvalidInput) as caught:
        anyio.run(call)
    is_clear(caught.value, said)


def test_an_error_of_the_callers_own_generator_is_passed_on(unchanged: Oncely) -> None:
    def jobs() -> Iterator[NewJob]:
        yield NewJob("k")
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        unchanged.enqueue_many(jobs())


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"limit": 0}, "limit is 0; expected a number from 1 to 10,000"),
        ({"limit": -1}, "limit is -1; expected"),
        ({"limit": 10_001}, "limit is 10001; expected"),
        ({"limit": 1.5}, "limit is 1.5; expected"),
        ({"limit": "10"}, "limit is '10'; expected"),
        ({"limit": True}, "limit is True; expected"),
        ({"limit": None}, "limit is None; expected"),
        ({"limit": 10**5000}, "limit is <int that cannot be shown>"),
        ({"state": "done"}, "state is 'done'; expected one of scheduled, pending, running"),
        ({"state": ""}, "state is ''; expected one of"),
        ({"state": "PENDING"}, "state is 'PENDING'; expected one of"),
        ({"state": ["pending"]}, "state is ['pending']; expected one of"),
        ({"kind": ""}, "kind is ''; expected"),
        ({"kind": "a\0"}, "kind is 'a\\x00'; expected"),
        ({"kind": "\ud800"}, "kind is '\\ud800'; expected"),
        ({"kind": 5}, "kind is 5; expected"),
        ({"queue": ["default"]}, "queue is ['default']; expected"),
        ({"queue": "no such queue"}, "queue is 'no such queue'; expected"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else ascii(value)[:22],
)
def test_jobs_refuses(unchanged: Oncely, filters: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        unchanged.jobs(**filters)
    is_clear(caught.value, said)

    async def call() -> None:
        await unchanged.ajobs(**filters)

    with pytest.raises(InvalidInput) as caught:
        anyio.run(call)
    is_clear(caught.value, said)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "jobs.db",
        "/tmp/jobs.db",
        ":memory:",
        "sqlite:jobs.db",
        "sqlite://jobs.db",
        "sqlite:///jobs.db?mode=ro",
        "sqlite:///a%00b.db",
        "mysql://localhost/jobs",
        "redis://localhost",
        "://",
        "postgresql://host/db?no_such_option=1",
        "postgresql://%zz@host/db",
        5,
        b"sqlite:///jobs.db",
        Path("jobs.db"),
    ],
    ids=repr,
)
def test_a_url_that_leads_nowhere_is_refused_at_once(
    url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput) as caught:
        Oncely(url)
    is_clear(caught.value, "the store's URL")
    assert "; expected sqlite:///" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_not_repeated_in_the_error() -> None:
    for url in (
        "postgres//me:secret@host/db",
        "mysql://me:secret@host/db",
        "postgresql://me:secret@host/db?no_such_option=1",
        "sqlite://me:secret@host/db",
    ):
        with pytest.raises(InvalidInput) as caught:
            Oncely(url)
        assert "secret" not in str(caught.value), url


@pytest.mark.parametrize(
    "schema",
    ["", "Oncely", "on cely", 'a"b', "a;b", "a.b", "1a", "ä", "x" * 64, "a\n", None, 5, b"a"],
    ids=ascii,
)
def test_a_schema_name_that_needs_quoting_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Oncely("postgresql://nowhere/db", schema=schema)
    is_clear(caught.value, "schema is")
    assert "expected 1 to 63 lower-case letters" in str(caught.value)
