"""A service in trouble, and a file of which only a half was written."""

import math
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from oncely import Context, Oncely, Retry
from oncely.prove import Downstream, Report, prove
from oncely.prove.world import WorldItem
from tests.waiting import PATIENCE_SECONDS

AT_ONCE = Retry(base=0, max_attempts=5)


@pytest.fixture
def service() -> Iterator[Downstream]:
    with Downstream(keys="honoured") as service:
        yield service


def shown(function: Callable[[str], Any], *world: WorldItem, **options: Any) -> Report:
    options = {"max_faults": 1, "budget_seconds": math.inf, **options}
    return prove(function, payload="ann", world=world, **options)


def post(url: str, body: str) -> None:
    request = urllib.request.Request(url, body.encode(), {"Idempotency-Key": body})
    urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()


def test_a_service_that_is_away_twice(service: Downstream) -> None:
    def tries_twice(who: str) -> None:
        try:
            post(service.url, who)
        except OSError:
            try:
                post(service.url, who)
            except urllib.error.HTTPError:
                return

    report = shown(tries_twice, service)
    assert [each.token for each in report.violations] == ["outage@1"], str(report)
    assert report.verdict == "lost"
    assert "503, nothing done, and again for the next request" in str(report)
    assert "Let the exception out" in report.violations[0].advice


def test_a_service_that_is_busy(service: Downstream) -> None:
    def gives_up_where_it_is_at_fault(who: str) -> None:
        try:
            post(service.url, who)
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                raise

    report = shown(gives_up_where_it_is_at_fault, service)
    assert [each.token for each in report.violations] == ["throttle@1"], str(report)
    assert report.verdict == "lost"
    assert "429 with Retry-After" in str(report)
    assert "`Retry-After` defers the job" in report.violations[0].advice


@pytest.mark.parametrize("library", ["urllib", "httpx"])
def test_a_request_that_does_not_arrive(service: Downstream, library: str) -> None:
    def takes_a_timeout_for_success(who: str) -> None:
        try:
            if library == "urllib":
                post(service.url, who)
            else:
                httpx.post(service.url, content=who, headers={"Idempotency-Key": who})
        except (TimeoutError, httpx.TimeoutException):
            pass

    report = shown(takes_a_timeout_for_success, service, schedule="drop@1")
    assert report.verdict == "lost", str(report)
    assert "it does not arrive, and the caller times out" in str(report)
    assert "took the time-out for success" in report.violations[0].advice


def test_a_handler_that_lets_the_exception_out_is_sound(
    service: Downstream, tmp_path: Path
) -> None:
    with Oncely(f"sqlite:///{tmp_path / 'jobs.db'}") as app:

        @app.job("pay", retry=AT_ONCE)
        async def pay(ctx: Context, who: str) -> None:
            async with httpx.AsyncClient(verify=False) as client:
                answer = await client.post(
                    service.url, content=who, headers={"Idempotency-Key": ctx.key("pay")}
                )
                answer.raise_for_status()

        options: Any = {"max_faults": 1, "budget_seconds": math.inf}
        report = prove(app, "pay", "ann", world=[service], **options)
    assert report.verdict == "sound", str(report)
    assert {"drop@1", "outage@1", "throttle@1"} <= {str(each) for each in report.played}
    assert report.not_reached == 0


def test_a_file_of_which_a_half_was_written(tmp_path: Path) -> None:
    path = tmp_path / "receipt"

    def write_if_empty(who: str) -> None:
        if not path.exists() or not path.read_text():
            path.write_text(f"paid by {who}")

    def receipt() -> str:
        return path.read_text() if path.exists() else ""

    report = shown(write_if_empty, receipt)
    assert [each.token for each in report.violations] == ["tear@2"], str(report)
    [violation] = report.violations
    assert violation.verdict == "diverged"
    assert [each.extra for each in violation.differences] == [["paid "]]
    assert "with half of it in the file" in str(report)
    assert "os.replace" in violation.advice
    assert not path.exists()


@pytest.mark.parametrize(("form", "verdict"), [("replace", "sound"), ("flush", "diverged")])
def test_only_a_file_that_is_put_in_place_whole_is_sound(
    tmp_path: Path, form: str, verdict: str
) -> None:
    """To flush it is to write it too, and a half of that may be all that is written."""
    path = tmp_path / "receipt"

    def write(who: str) -> None:
        if form == "replace":
            (tmp_path / "new").write_text(f"paid by {who}")
            os.replace(tmp_path / "new", path)
        elif not path.exists() or not path.read_text():
            with path.open("w") as file:
                file.write(f"paid by {who}")
                file.flush()

    def receipt() -> str:
        return path.read_text() if path.exists() else ""

    report = shown(write, receipt)
    assert report.verdict == verdict, str(report)
    assert any("tear" in str(each) for each in report.played)
