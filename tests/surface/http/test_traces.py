"""A trace crosses HTTP: in with a request, out with a claim or a push. The server has no spans."""

import pytest

from oncely import Context, NewJob, Oncely
from oncely.flow.trace import carrying, current
from tests.engine.push_receiver import receiver
from tests.surface.http.server import Client
from tests.waiting import wait_until

COMES_IN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ANOTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def claimed(client: Client, queue: str) -> list[str | None]:
    body = {"workerId": "w", "max": 10}
    jobs = client.post(f"/v1/queues/{queue}/claim", json=body).json()["jobs"]
    return [job["traceparent"] for job in jobs]


def test_what_comes_with_a_request_goes_out_with_the_claim(client: Client) -> None:
    client.post("/v1/queues/a/jobs", json={"payload": 1}, headers={"traceparent": COMES_IN})
    batch = {"jobs": [{"payload": 2}, {"payload": 3}]}
    client.post("/v1/queues/a/jobs/batch", json=batch, headers={"traceparent": ANOTHER})
    client.post("/v1/queues/a/jobs", json={"payload": 4})
    told = client.post("/v1/queues/a/jobs", json={"payload": 5}, headers={"traceparent": "no"})
    assert told.status_code == 201
    assert claimed(client, "a") == [COMES_IN, ANOTHER, ANOTHER, None, None]


def test_what_comes_with_a_request_goes_out_with_the_push(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCELY_PUSH_ALLOW", "127.0.0.0/8")
    with receiver() as there:
        push = {"url": there.url, "secret": SECRET, "mode": "sync"}
        client.put("/v1/queues/hooks", json={"push": push})
        client.post("/v1/queues/hooks/jobs", json={"payload": 1}, headers={"traceparent": COMES_IN})
        wait_until(lambda: there.requests)
        assert there.requests[0].headers["traceparent"] == COMES_IN
        client.publish("hooks", 2)
        wait_until(lambda: len(there.requests) == 2)
        assert "traceparent" not in there.requests[1].headers


def test_over_http_a_client_and_a_worker_pass_it_on(client: Client) -> None:
    found = []
    with Oncely(str(client.base_url)) as app:

        @app.job("k")
        def handler(ctx: Context) -> None:
            found.append((ctx.payload, current()))

        with carrying(COMES_IN):
            app.enqueue("k", 1)
            app.enqueue_many([NewJob("k", 2), NewJob("k", 3)])
        app.enqueue("k", 4)
        app.drain()
    assert sorted(found) == [(1, COMES_IN), (2, COMES_IN), (3, COMES_IN), (4, None)]
