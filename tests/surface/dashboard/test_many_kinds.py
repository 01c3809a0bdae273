"""Made-up kinds in large numbers: pages and metrics stay small, and the server still answers."""

import asyncio
import re
import threading

from oncely import NewJob, Oncely
from oncely.model.counter import KINDS_LIMIT
from oncely.surface.dashboard.live import Live
from oncely.surface.dashboard.pages import TOPICS
from oncely.surface.dashboard.site import Dashboard
from tests.engine.test_counters import fold
from tests.surface.dashboard.test_overview import page, plain
from tests.surface.http.server import Client, in_thread

OVER = 50


def enqueue_kinds(app: Oncely) -> None:
    app.enqueue_many([NewJob(f"k.{n}") for n in range(KINDS_LIMIT)])
    fold(app)
    app.enqueue_many([NewJob(f"l.{n}", idempotency_key=f"l:{n}") for n in range(OVER)] * 2)


def test_kinds_beyond_the_bound_are_one_row_of_the_pages_and_of_the_metrics(app: Oncely) -> None:
    enqueue_kinds(app)
    with in_thread(app) as url, Client(url) as client, Client(f"{url}/dashboard") as site:
        shown = plain(page(site, "/"))
        assert re.search(rf" other kinds {OVER} 0 0 0 ", shown)
        assert f"and {KINDS_LIMIT + 1 - 50:,} more kinds" in shown
        shown = plain(page(site, "/doors"))
        assert re.search(rf" other kinds {OVER} {OVER} 0 0 0 ", shown)
        assert f"and {KINDS_LIMIT + 1 - 100:,} more kinds" in shown
        text = client.get("/metrics").text
        assert text.count("\noncely_enqueued_total{") == KINDS_LIMIT + 1
        assert f'oncely_enqueued_total{{kind="(other)"}} {OVER}.0' in text
        assert [job["kind"] for job in client.get("/v1/jobs?kind=l.7").json()["jobs"]] == ["l.7"]
        found = client.get("/v1/counters").json()["counters"]
        assert len(found) == KINDS_LIMIT + 2


def test_live_parts_are_made_beside_the_event_loop(app: Oncely) -> None:
    """Others are answered meanwhile, the health check among them."""
    app.enqueue("k", idempotency_key="k:1")
    site = Dashboard(app).site
    names = site.names
    threads: set[int] = set()

    def watched(root: str) -> dict[str, object]:
        def url(path: str) -> str:
            threads.add(threading.get_ident())
            return root + path

        return {**names(root), "url": url}

    site.names = watched  # type: ignore[method-assign]

    async def look() -> None:
        live = Live(site, TOPICS)
        for topic in ("overview-hour", "doors-hour", "keys"):
            assert await live.part(topic, "")

    asyncio.run(look())
    assert threads
    assert threading.get_ident() not in threads
