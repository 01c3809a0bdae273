"""What every call goes through: sizes, headers, media types, request ids, rates, and no leaks."""

import gzip
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from oncely import Oncely
from oncely.surface.http import service
from oncely.surface.http.service import Settings
from tests.surface.http.server import Client, in_thread, raw
from tests.waiting import wait_until

JOBS = "/v1/queues/q/jobs"
JSON = {"content-type": "application/json"}


def code(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == answer.status_code
    assert {"type", "title", "status", "detail", "code", "retryable"} <= set(told)
    return answer.status_code, told["code"]


def test_a_body_that_is_too_large_is_refused_while_it_is_read(app: Oncely) -> None:
    """Also one that does not say how large it is, and never ends."""
    settings = Settings(max_body_bytes=100_000, max_batch_bytes=200_000)
    with in_thread(app, settings) as url, Client(url) as client:
        told = client.post(JOBS, content=b" " * 100_001, headers=JSON)
        assert code(told) == (413, "body_too_large")
        head = f"POST {JOBS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
        answer = raw(url, chunked + (b"400\r\n" + b" " * 1_024 + b"\r\n") * 100, hold=True)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b'"body_too_large"' in answer
        many = json.dumps({"jobs": [{"payload": "x" * 150_000}]}).encode()
        assert client.post(f"{JOBS}/batch", content=many, headers=JSON).status_code == 200
        told = client.post(f"{JOBS}/batch", content=many + b" " * 60_000, headers=JSON)
        assert code(told) == (413, "body_too_large")
        # A call without a body is no way around it.
        told = client.post("/v1/queues/q/pause", content=b" " * 100_001, headers=JSON)
        assert code(told) == (413, "body_too_large")
    assert len(app.jobs()) == 1


def test_nesting_ends_at_64_levels(client: Client, app: Oncely) -> None:
    def nested(depth: int) -> bytes:
        return b'{"payload": ' + b"[" * depth + b"]" * depth + b"}"

    assert client.post(JOBS, content=nested(64), headers=JSON).status_code == 201
    for depth in (65, 1_000, 500_000):
        told = client.post(JOBS, content=nested(depth), headers=JSON)
        assert code(told) == (422, "invalid_request")
        assert "nested" in told.json()["detail"]
    assert len(app.jobs()) == 1


def test_only_plain_json_is_taken(client: Client, app: Oncely) -> None:
    body = b'{"payload": 1}'
    packed = gzip.compress(body)
    for headers, content in (
        ({"content-type": "text/plain"}, body),
        ({"content-type": "application/x-www-form-urlencoded"}, body),
        ({"content-type": "application/json; charset=latin-1"}, body),
        ({}, body),
        ({**JSON, "content-encoding": "gzip"}, packed),
        ({**JSON, "content-encoding": "br"}, body),
    ):
        assert code(client.post(JOBS, content=content, headers=headers)) == (
            415,
            "unsupported_media_type",
        )
    for content in (
        b"{",
        b"",
        b'{"payload": \xff}',
        b'{"payload": NaN}',
        b'{"payload": "\\ud800"}',
    ):
        told = client.post(JOBS, content=content, headers=JSON)
        assert code(told) in {(400, "malformed_json"), (422, "invalid_request")}
    assert app.jobs() == []
    for good in ("application/json; charset=utf-8", "Application/JSON", "application/x.y+json"):
        told = client.post(JOBS, content=body, headers={"content-type": good})
        assert told.status_code == 201, good


def test_headers_that_come_twice_or_are_too_large_are_refused(client: Client, app: Oncely) -> None:
    body = b'{"payload": 1}'
    for name in ("Idempotency-Key", "Authorization", "Content-Type", "X-Request-Id"):
        told = client.post(
            JOBS,
            content=body,
            headers=[("Content-Type", "application/json"), (name, "a"), (name, "b")],
        )
        assert code(told) == (400, "invalid_header")
    for large in ({"x-long": "x" * 9_000}, {f"x-{n}": "x" * 1_000 for n in range(40)}):
        told = client.post(JOBS, content=body, headers={**JSON, **large})
        assert code(told) == (431, "headers_too_large")
    told = client.post(JOBS, content=body, headers={**JSON, "idempotency-key": "x" * 300})
    assert code(told) == (400, "invalid_header")
    assert app.jobs() == []


def test_a_line_break_never_gets_into_a_header(client: Client) -> None:
    """Bytes that a client library would not send."""
    url = str(client.base_url).rstrip("/")
    for value in (b"a\rInjected: 1", b"a\x00b", b"a\x1bb"):
        answer = raw(
            url,
            b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: %s\r\n\r\n"
            % value,
        )
        assert answer.startswith(b"HTTP/1.1 400"), answer
        assert b"njected" not in answer.partition(b"\r\n\r\n")[0]
    told = client.get("/v1/queues/a%0d%0aInjected:%201")
    assert told.status_code == 422
    assert "injected" not in told.headers


def test_a_request_has_an_id_its_own_or_a_new_one(client: Client) -> None:
    assert (
        client.get("/healthz", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    )
    made = {client.get("/nowhere").headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    strange = client.get("/healthz", headers={"x-request-id": "a b<script>"})
    assert strange.headers["x-request-id"].startswith("req_")


def test_what_is_not_there(client: Client) -> None:
    for path in (
        "/v1",
        "/v2/jobs",
        "/v1/jobs/",
        "/v1/queues/q/jobs/",
        "/v1/queues/a%2Fb/jobs",
    ):
        assert code(client.get(path)) == (404, "not_found"), path
    told = client.delete("/v1/queues/q")
    assert code(told) == (405, "method_not_allowed")
    assert told.headers["allow"] == "GET, PUT"
    told = client.request("TRACE", JOBS, headers={"idempotency-key": ""})
    assert code(told) == (405, "method_not_allowed")
    assert client.head("/healthz").status_code == 200
    assert client.head("/healthz").content == b""


def test_a_page_of_another_site_cannot_use_a_server_without_tokens(
    client: Client, app: Oncely
) -> None:
    led = {"host": "evil.example:8000"}
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://[evil"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://evil.example:8000", **led},
        {"sec-fetch-site": "same-origin", **led},
        led,  # as a browser asks over plain http, once its name server leads it here
        {"sec-fetch-site": "same-origin", "host": "[evil"},
    ):
        told = client.post("/v1/queues/q/pause", headers=headers)
        assert code(told) == (403, "cross_site")
    own = str(client.base_url).rstrip("/")
    assert client.post("/v1/queues/q/pause", headers={"origin": own}).status_code == 200


@pytest.mark.parametrize(("rate", "at_once", "retry_after"), [(3, 3, 1), (0.25, 1, 4)])
def test_a_key_that_asks_too_often_is_told_when_to_come_back(
    app: Oncely, monkeypatch: pytest.MonkeyPatch, rate: float, at_once: int, retry_after: int
) -> None:
    now = 0.0
    monkeypatch.setattr(service, "time", SimpleNamespace(monotonic=lambda: now))
    keys = [app.create_token(["read"]).key for _ in range(2)]
    with in_thread(app, Settings(requests_per_second=rate)) as url:
        with Client(url, keys[0]) as client:
            answers = [client.get("/v1/queues") for _ in range(at_once + 2)]
            assert [answer.status_code for answer in answers] == [*[200] * at_once, 429, 429]
            assert code(answers[-1]) == (429, "rate_limited")
            assert int(answers[-1].headers["retry-after"]) == retry_after
            assert answers[-1].json()["retryable"] is True
            assert client.get("/healthz").status_code == 200
            now += 1 / rate
            answers = [client.get("/v1/queues") for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 429]
        with Client(url, keys[1]) as other:
            assert other.get("/v1/queues").status_code == 200


def test_trouble_in_the_store_is_told_without_its_details(
    app: Oncely, caplog: pytest.LogCaptureFixture
) -> None:
    with in_thread(app) as url, Client(url) as client:
        assert client.get("/readyz").status_code == 200
        app.close()
        for answer in (client.publish("q", 1), client.get("/v1/jobs"), client.get("/readyz")):
            assert code(answer) == (503, "store_unavailable")
            assert answer.json()["retryable"] is True
            assert "retry-after" in answer.headers
            assert "closed" not in answer.text
            assert "Traceback" not in answer.text
        assert client.get("/healthz").status_code == 200
    assert "closed" in caplog.text


def test_a_bug_is_told_without_its_details(
    client: Client, app: Oncely, caplog: pytest.LogCaptureFixture
) -> None:
    with in_thread(app) as url, Client(url) as own:
        app._engine.run = None  # type: ignore[method-assign, assignment]
        answer = own.get("/v1/jobs")
        del app._engine.run
    assert code(answer) == (500, "internal_error")
    assert "NoneType" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["detail"]
    assert "NoneType" in caplog.text


def access_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "oncely.access"]


def test_the_access_log_has_no_payload_key_or_query(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "oncely.access"):
        client.post(
            f"{JOBS}", json={"payload": "secret-1", "idempotencyKey": "secret-2"},
            headers={"authorization": "Bearer secret-3", "x-request-id": "mine"},
        )  # fmt: skip
        client.get("/v1/jobs?kind=secret-4")
        # They are written once the answer is on its way.
        wait_until(lambda: len(access_lines(caplog)) == 2)
    lines = access_lines(caplog)
    assert "secret" not in caplog.text
    for part in (
        "method=POST",
        f"path={JOBS}",
        "status=201",
        "request_id=mine",
        "client=127.0.0.1",
    ):
        assert part in lines[0]


def test_what_was_counted(client: Client) -> None:
    for _ in range(3):
        client.publish("q", 1, kind="order.charge", idempotencyKey="k:1")
    client.publish("q", 2, kind="order.charge", idempotencyKey="k:1")
    client.publish("later", 2, kind="k", delay=60)
    told = client.get("/metrics")
    assert told.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    for line in (
        'oncely_enqueued_total{kind="order.charge"} 1.0',
        'oncely_deduplicated_total{boundary="enqueue",kind="order.charge"} 2.0',
        'oncely_queue_waiting{queue="q"} 1.0',
        'oncely_queue_waiting{queue="later"} 1.0',
        'oncely_queue_running{queue="q"} 0.0',
        'oncely_queue_paused{queue="q"} 0.0',
        'oncely_jobs{state="failed"} 0.0',
        'oncely_queue_oldest_seconds{queue="later"} 0.0',
    ):
        assert line in told.text.splitlines(), line


@pytest.mark.parametrize("path", ["/v1%2Fqueues", "/v1/queues%2fq", "/dashboard%2F", "%2Fhealthz"])
def test_a_slash_in_disguise_is_no_slash(app: Oncely, path: str) -> None:
    with in_thread(app) as url:
        head = f"GET /{path.lstrip('/')} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        assert raw(url, head.encode(), hold=True).startswith(b"HTTP/1.1 404")
