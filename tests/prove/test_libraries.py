"""Each library for HTTP: seen before it sends, made to fail, and never taken for another."""

import json
import math
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests

from oncely import Context, InvalidInput, Nack, Oncely, Retry
from oncely.prove import Downstream, prove
from oncely.prove.downstream import Keys
from tests.waiting import PATIENCE_SECONDS

AT_ONCE = Retry(base=0, max_attempts=5)
Send = Callable[[str], Any]
UNENCRYPTED: Any = {"timeout": PATIENCE_SECONDS, "verify": False}
"""It reads all certificates of the system otherwise, in every delivery."""


def by_urllib(url: str) -> None:
    with urllib.request.urlopen(url, b"charge", timeout=PATIENCE_SECONDS):
        pass


def by_requests(url: str) -> None:
    requests.post(url, data=b"charge", timeout=PATIENCE_SECONDS).raise_for_status()


def by_httpx(url: str) -> None:
    httpx.post(url, content=b"charge", **UNENCRYPTED).raise_for_status()


async def by_async_httpx(url: str) -> None:
    async with httpx.AsyncClient(**UNENCRYPTED) as client:
        (await client.post(url, content=b"charge")).raise_for_status()


def by_httpx2(url: str) -> None:
    import httpx2

    httpx2.post(url, content=b"charge", **UNENCRYPTED).raise_for_status()


async def by_aiohttp(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(url, data=b"charge") as answer:
        answer.raise_for_status()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Oncely]:
    with Oncely(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


def register(app: Oncely, send: Send, url: str) -> None:
    if send.__name__ in ("by_async_httpx", "by_aiohttp"):

        async def ahandler(ctx: Context) -> None:
            await send(url)

        app.job("handler", retry=AT_ONCE)(ahandler)
    else:
        app.job("handler", retry=AT_ONCE)(lambda ctx: send(url))


@pytest.mark.parametrize(
    "send", [by_urllib, by_requests, by_httpx, by_async_httpx, by_httpx2, by_aiohttp]
)
def test_every_library_is_seen_and_meets_the_faults(app: Oncely, send: Send) -> None:
    with Downstream() as service:
        register(app, send, f"{service.url}/charges")
        report = prove(app, "handler", world=[service], max_faults=1, budget_seconds=math.inf)
    names = [each.name for each in report.boundaries]
    assert names == ["claim", f"POST {service.url}/charges", "settle"]
    assert report.unobserved == []
    assert {each.token: each.verdict for each in report.violations} == dict.fromkeys(
        ["crash@2", "lose@1", "timeout@1", "zombie@1", "zombie@2", "late@2"], "doubled"
    )
    assert report.not_reached == 0


def test_a_service_that_is_not_in_the_world_is_named(app: Oncely) -> None:
    with Downstream() as service:
        register(app, by_urllib, service.url)
        report = prove(app, "handler", schedule="crash@1")
    assert report.verdict == "unobserved"
    assert any(service.host in each for each in report.unobserved)


@pytest.mark.parametrize(
    ("keys", "verdicts"),
    [("honoured", set()), ("forgotten", {"late@2"}), ("ignored", {"crash@2", "late@2"})],
)
def test_what_a_key_is_to_the_service(app: Oncely, keys: Keys, verdicts: set[str]) -> None:
    def charge(ctx: Context) -> None:
        request = urllib.request.Request(service.url, b"charge", {"Idempotency-Key": "order:1"})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS):
            pass

    app.job("handler", retry=AT_ONCE)(charge)
    with Downstream(keys=keys) as service:
        report = prove(app, "handler", world=[service], max_faults=1, budget_seconds=math.inf)
    crashes = {each.token for each in report.violations if each.token[0] in "cl"}
    assert crashes - {"lose@1"} == verdicts
    assert report.ok is (keys == "honoured")


def test_a_refusal_that_is_replayed_leaves_the_job_stuck(app: Oncely) -> None:
    def charge(ctx: Context) -> None:
        request = urllib.request.Request(service.url, b"charge", {"Idempotency-Key": "order:1"})
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS):
            pass

    app.job("handler", retry=AT_ONCE)(charge)
    with Downstream(keys="honoured", replays_errors=True) as service:
        report = prove(app, "handler", world=[service], schedule="refuse@1")
    assert [each.verdict for each in report.violations] == ["stuck"]


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_request_in_progress_is_refused_with_409(app: Oncely, gives_up: bool) -> None:
    """Who takes every 4xx for an end gives up a charge that was made."""

    def charge(ctx: Context) -> None:
        request = urllib.request.Request(service.url, b"charge", {"Idempotency-Key": "order:1"})
        try:
            urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()
        except urllib.error.HTTPError as error:
            error.close()
            raise Nack("refused", retryable=not gives_up or error.code >= 500) from None

    app.job("handler", retry=AT_ONCE)(charge)
    with Downstream(keys="honoured", answers_409=True) as service:
        report = prove(app, "handler", world=[service], schedule="timeout@1")
    assert [each.verdict for each in report.violations] == (["stuck"] if gives_up else [])
    assert not gives_up or "→ 409" in str(report)


def test_two_calls_at_once_with_one_key_are_one(app: Oncely) -> None:
    def statuses(**options: Any) -> list[int]:
        inside, go_on = threading.Event(), threading.Event()

        def answer(_: Any) -> dict[str, bool]:
            inside.set()
            go_on.wait(PATIENCE_SECONDS)
            return {"ok": True}

        def post() -> int:
            headers = {"Idempotency-Key": "order:1"}
            return requests.post(
                service.url, data=b"x", headers=headers, timeout=PATIENCE_SECONDS
            ).status_code

        with (
            Downstream(keys="honoured", answer=answer, **options) as service,
            ThreadPoolExecutor() as pool,
        ):
            first = pool.submit(post)
            assert inside.wait(PATIENCE_SECONDS)
            second = post()
            go_on.set()
            found = [first.result(), second, post()]
            assert len(service.done) == 1
            return found

    assert statuses(answers_409=True) == [200, 409, 200]
    with pytest.raises(InvalidInput, match="ignores keys"):
        Downstream(answers_409=True)


def test_a_downstream_answers(app: Oncely) -> None:
    with Downstream(answer=lambda request: {"you said": request.body}) as service:
        with urllib.request.urlopen(
            f"{service.url}/a", b"hello", timeout=PATIENCE_SECONDS
        ) as answer:
            assert json.load(answer) == {"you said": "hello"}
        with urllib.request.urlopen(f"{service.url}/a", timeout=PATIENCE_SECONDS) as answer:
            assert [each["body"] for each in json.load(answer)["done"]] == ["hello"]
        assert [str(each) for each in service.done] == ["POST /a hello"]
