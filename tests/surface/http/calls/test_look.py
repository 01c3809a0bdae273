"""Looking over HTTP: a job as it stands, and pages without gaps."""

from typing import Any

import httpx2
import pytest

from oncely import Context, Nack, Oncely
from oncely.store import listing
from tests.surface.http.server import Client

UNKNOWN = "01900000-0000-7000-8000-000000000000"


def test_a_job_is_shown_with_its_executions_and_effects(client: Client, app: Oncely) -> None:
    @app.job("charge", queue="q")
    def charge(ctx: Context, order: dict[str, Any]) -> str:
        ctx.step("bill", lambda n: {"paid": n}, order["n"])
        if ctx.attempt == 1:
            raise Nack("later", retryable=True)
        raise Nack("never", retryable=False)

    job_id = client.publish("q", {"n": 1}, kind="charge").json()["id"]
    app.set_queue("q", retry=None)
    while (job := client.get(f"/v1/jobs/{job_id}").json())["state"] != "failed":
        app.drain()
    assert [each["outcome"] for each in job["executions"]] == ["retried", "failed"]
    assert [each["attempt"] for each in job["executions"]] == [1, 2]
    assert job["executions"][0]["error"]["message"] == "later"
    [effect] = job["effects"]
    assert (effect["name"], effect["verb"], effect["state"]) == ("bill", "step", "done")
    assert effect["result"] == {"paid": 1}
    assert job["error"]["message"] == "never"
    assert job["endedAt"] is not None


def test_pages_have_every_job_once_the_newest_first(client: Client, app: Oncely) -> None:
    jobs = [{"payload": n} for n in range(25)]
    told = client.post("/v1/queues/q/jobs/batch", json={"jobs": jobs}).json()
    ids = [each["id"] for each in told["results"]]
    client.publish("other", 1)
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        query = {"queue": "q", "state": "pending", "limit": "10"}
        page = client.get("/v1/jobs", params={**query, **({"cursor": cursor} if cursor else {})})
        found += [job["id"] for job in page.json()["jobs"]]
        cursor = page.json()["nextCursor"]
        pages += 1
        client.publish("q", "new")  # what comes meanwhile is not in the way
    assert found == ids[::-1]
    assert pages == 3


def test_each_state_has_pages(client: Client, app: Oncely) -> None:
    for state in (
        "scheduled",
        "pending",
        "running",
        "completed",
        "failed",
        "cancelled",
        "in_doubt",
    ):
        page = client.get("/v1/jobs", params={"state": state, "kind": "k", "queue": "q"})
        assert page.json() == {"jobs": [], "nextCursor": None}
    client.publish("q", 1, delay=60)
    assert len(client.get("/v1/jobs?state=scheduled").json()["jobs"]) == 1


def test_the_dead_letter_queue_the_oldest_first(client: Client, app: Oncely) -> None:
    @app.job("k", queue="q")
    def fail(ctx: Context) -> None:
        raise Nack(f"no {ctx.payload}", retryable=False)

    ids = [client.publish("q", n, kind="k").json()["id"] for n in range(5)]
    app.drain()
    first = client.get("/v1/dlq", params={"queue": "q", "limit": "3"}).json()
    assert [job["id"] for job in first["jobs"]] == ids[:3]
    rest = client.get("/v1/dlq", params={"limit": "3", "cursor": first["nextCursor"]}).json()
    assert ([job["id"] for job in rest["jobs"]], rest["nextCursor"]) == (ids[3:], None)
    [one] = client.get("/v1/dlq", params={"error": "no 2"}).json()["jobs"]
    assert one["id"] == ids[2]
    assert client.get("/v1/dlq", params={"kind": "other"}).json()["jobs"] == []


def test_what_cannot_be_asked_is_told(client: Client) -> None:
    for query in (
        "state=done",
        "limit=0",
        "limit=1001",
        "limit=ten",
        "cursor=next",
        "queue=no%20name",
        "kind=",
        "unknown=1",
        "limit=1&limit=2",
        "state",
        "kind=%ff",
        "state=null",
    ):
        refused = client.get(f"/v1/jobs?{query}")
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request"), query
    refused = client.get("/v1/dlq?error=a%00b")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    refused = client.post("/v1/dlq/replay", json={"error": "a\0b"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")


def test_no_such_job(client: Client) -> None:
    answers = [client.get(f"/v1/jobs/{id}") for id in (UNKNOWN, "x", "1" * 36, UNKNOWN.upper())]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["code"] == "job_not_found"


@pytest.mark.parametrize("query", ["/v1/jobs", "/v1/jobs?state=failed", "/v1/dlq"])
def test_a_page_ends_at_a_size(
    client: Client, app: Oncely, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """However many are asked for, and wherever the large ones are."""
    monkeypatch.setattr(listing, "PAGE_BYTES", 100_000)
    monkeypatch.setattr(listing, "_FEW_ON_A_PAGE", 2)

    @app.job("k")
    def fail(_: Any, text: str) -> None:
        raise ValueError

    sizes = [10, 40_000, 10, 10, 90_000, *[10] * 30, *[20_000] * 20]
    ids = [app.enqueue("k", "x" * size, max_attempts=1).job_id for size in sizes]
    app.drain()
    found: list[str] = []
    pages, cursor = 0, None
    while pages == 0 or cursor is not None:
        params = {"limit": "1000", **({"cursor": cursor} if cursor else {})}
        page = client.get(httpx2.URL(query).copy_merge_params(params))
        assert len(page.content) < 250_000
        found += [job["id"] for job in page.json()["jobs"]]
        pages, cursor = pages + 1, page.json()["nextCursor"]
    assert found == (ids if "dlq" in query else ids[::-1])
    assert pages > 2
