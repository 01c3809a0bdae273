"""Overview, doors and workers: what is counted is shown, and one question serves everybody."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest

from oncely import Context, KeyConflict, NewJob, Oncely, Retry
from oncely.model.traffic import Counted, Traffic
from oncely.model.worker import About
from oncely.store import counters, workers
from oncely.surface.dashboard.charts import Part, counts
from oncely.surface.dashboard.live import Live, Topic
from oncely.surface.dashboard.site import Dashboard, Site
from tests.engine.steps import sql
from tests.surface.dashboard.shop import PROBE
from tests.surface.http.server import Client, in_thread

CHART = re.compile(r"data-chart='([^']*)'")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oncely]:
    """With something of everything, before anybody looks: pages are as they were a moment ago."""
    with Oncely(f"sqlite:///{tmp_path_factory.mktemp('overview')}/jobs.db") as app:
        work(app)
        yield app


def work(app: Oncely) -> None:
    @app.job("mail.send", queue="mail")
    async def send(ctx: Context) -> None: ...

    @app.job("mail.fail", queue="mail", retry=Retry(max_attempts=2, base=0))
    async def fail(ctx: Context) -> None:
        raise RuntimeError

    for _ in range(2):
        app.enqueue_many([NewJob("mail.send", n, idempotency_key=f"mail:{n}") for n in range(7)])
    app.enqueue("mail.fail")
    with pytest.raises(KeyConflict):
        app.enqueue("mail.send", "other", queue="mail", idempotency_key="mail:1")
    assert app.drain() == 9
    app.enqueue_many([NewJob("never", n, queue="slow") for n in range(10_001)])
    for name, host in (("till-2", PROBE), ("till-3", "till")):
        me = About(name, host, 7, ["mail"], 4, "1.0")
        app._engine.run(lambda _, me=me: workers.seen(me, 2), "write")  # type: ignore[misc]
    sql(app, "update oncely.worker set seen_at = seen_at - 40000000 where name = 'till-3'")
    # However long the tests take, it was here a moment ago.
    sql(app, "update oncely.worker set seen_at = seen_at + 3600000000 where name = 'till-2'")
    # Some steps ago: the one that is under way is not drawn beside others, and one may have ended
    # in the middle of the work.
    while app._engine.run(lambda _: counters.fold(), "transaction"):
        pass
    for table in ("traffic", "latency"):
        sql(app, f"update oncely.{table} set step = step - 10 * seconds")


@pytest.fixture(scope="module")
def client(app: Oncely) -> Iterator[Client]:
    with in_thread(app) as url, Client(f"{url}/dashboard") as client:
        yield client


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def plain(text: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


def drawn(text: str) -> dict[str, list[Any]]:
    """The lines of the charts, by their names."""
    charts = [json.loads(unescape(found)) for found in CHART.findall(text)]
    for chart in charts:
        assert {len(line["values"]) for line in chart["series"]} == {len(chart["times"])}
    return {line["name"]: line["values"] for chart in charts for line in chart["series"]}


def test_an_empty_store_says_what_would_be_here(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app, in_thread(app) as url, Client(f"{url}/dashboard") as client:
        assert "No queues yet" in page(client, "/")
        assert "Nothing came to the doors" in page(client, "/doors?last=month")
        assert "Nobody runs the jobs" in page(client, "/workers")


def test_kinds_without_a_handler_are_shown(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app, in_thread(app) as url, Client(f"{url}/dashboard") as client:
        app.enqueue_many([NewJob("a"), NewJob("a"), NewJob("b:c")])
        app.drain()
        assert "No handler 3 jobs wait for a worker that knows a , b:c" in plain(page(client, "/"))


def test_of_many_kinds_without_a_handler_five_are_named(sqlite_url: str) -> None:
    with Oncely(sqlite_url) as app, in_thread(app) as url, Client(f"{url}/dashboard") as client:
        app.enqueue_many(NewJob(f"k{n}") for n in range(8))
        app.drain()
        shown = plain(page(client, "/"))
    [card] = re.findall(r"No handler 8 jobs wait for a worker that knows (.*?) and 3 more ", shown)
    assert card.count("k") == 5


def test_a_span_that_is_not_there_is_a_page_that_helps(client: Client) -> None:
    for path in ("/", "/doors"):
        answer = client.get(f"{path}?last=<b>")
        assert answer.status_code == 422
        assert "expected one of hour, day, month" in plain(answer.text)
        assert "<b>" not in answer.text


def test_what_was_counted_is_shown(client: Client) -> None:
    for last in ("hour", "day", "month"):
        text = page(client, f"/?last={last}")
        lines = drawn(text)
        assert (sum(lines["completed"]), sum(lines["failed"]), sum(lines["retried"])) == (7, 1, 1)
        assert sum(lines["enqueued"]) == 10_009
        assert len(lines["p95"]) == {"hour": 60, "day": 96, "month": 120}[last]
        shown = plain(text)
        assert re.search(r"Executions 9 in ", shown)
        assert re.search(r"slow 10,000\+ ", shown)  # it is not counted further
        assert re.search(r"mail\.send 7 7 0 0 [\d.]+ .?s", shown)
        assert re.search(r"mail\.fail 1 0 1 1 ", shown)
        assert re.search(r"Dead-letter queue 1 ", shown)
        text = page(client, f"/doors?last={last}")
        lines = drawn(text)
        assert [sum(lines[f"at {door}"]) for door in ("enqueue", "delivery", "effect")] == [7, 0, 0]
        assert sum(lines["refused"]) == 1
        assert re.search(r"mail\.send 7 7 0 0 1 ", plain(text))
        assert re.search(r"mail\.send collides its keys come back", plain(text))


def test_a_step_that_is_under_way_is_not_drawn_as_a_fall() -> None:
    def drawn(values: list[int]) -> Sequence[float | None]:
        since = datetime(2026, 1, 1, tzinfo=UTC)
        some = Traffic(since, 60, 60, [Counted("enqueued", "k", "", values)], [])
        chart = counts(some, "", [Part("enqueued", "main", some.values("enqueued"))])
        assert sum(int(row[1]) for row in chart.rows) == sum(values)
        assert len(chart.times) == len(chart.series[0].values)
        return chart.series[0].values

    assert list(drawn([*[9] * 59, 1])) == [9] * 59
    assert list(drawn([*[0] * 59, 1])) == [*[0] * 59, 1]


def test_workers_that_are_there_and_one_that_is_silent(client: Client) -> None:
    text = page(client, "/workers")
    assert "<img" not in text.partition("<main")[2]
    shown = plain(text)
    assert re.search(r"Alive 1 1\.0 Silent 1 .*Running 2 of 4 at once", shown)
    assert re.search(r"till-3 silent till 7 mail 2 of 4 1\.0 .* till-2 alive ", shown)


def test_a_live_part_is_the_page_again(client: Client) -> None:
    with client.stream("GET", "/live?topic=overview-hour&topic=keys") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events: dict[str, list[str]] = {}
        for line in stream.iter_lines():
            name, _, rest = line.partition(": ")
            if name == "event":
                lines = events.setdefault(rest, [])
            elif name == "data":
                lines.append(rest)
            elif len(events) == 2 and not line:
                break
    assert drawn("\n".join(events["overview-hour"]))["completed"]
    assert any("newest 2,000 jobs" in line for line in events["keys"])
    assert client.get("/live?topic=nothing").status_code == 404


def test_however_many_look_the_store_is_asked_once(app: Oncely) -> None:
    asked = 0

    async def read(_: Site) -> Mapping[str, Any]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return {}

    async def look() -> None:
        live = Live(Dashboard(app).site, [Topic("t", "part.html", read, every_seconds=600)])
        await asyncio.gather(*(live.part("t", "") for _ in range(50)))
        await live.part("t", "")

    asyncio.run(look())
    assert asked == 1
