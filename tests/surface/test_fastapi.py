"""`IdempotencyMiddleware` around a FastAPI app, in a real server."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oncely import Oncely
from tests.engine.steps import let_days_pass
from tests.surface.asgi_server import Server, serve
from tests.waiting import PATIENCE_SECONDS, wait_until

MODULE = "tests.surface.fastapi_server"


@pytest.fixture
def charges(tmp_path: Path) -> Path:
    path = tmp_path / "charges"
    path.touch()
    return path


def post(server: Server, body: Any, key: str | None = "k", path: str = "/charge") -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return httpx2.post(
        server.url + path, json=body, headers=headers, timeout=PATIENCE_SECONDS, verify=False
    )


def test_a_route_runs_once_with_its_model_its_dependency_and_what_follows(
    app: Oncely, charges: Path
) -> None:
    with serve(app.url, charges, module=MODULE, required=True) as server:
        first = post(server, {"order": "1"})
        again = post(server, {"order": "1"})
        assert (first.status_code, again.status_code) == (201, 201)
        assert "Idempotent-Replayed" not in first.headers
        assert again.headers["Idempotent-Replayed"] == "true"
        assert again.json() == first.json()
        wait_until(lambda: len(charges.read_text().splitlines()) == 2)
        assert charges.read_text().splitlines() == ["1", "after 1"]

        refusals = [post(server, {"order": "2"}), post(server, {"order": "1"}, key=None)]
        assert [answer.json()["code"] for answer in refusals] == [
            "idempotency_key_mismatch",
            "idempotency_key_missing",
        ]
        for key, body, status in (
            ("bad", {"order": 7}, 422),
            ("poor", {"order": "1", "cents": -1}, 402),
        ):
            told = [post(server, body, key=key) for _ in "12"]
            assert [answer.status_code for answer in told] == [status, status]
            assert told[0].json() == told[1].json()
            assert told[1].headers["Idempotent-Replayed"] == "true"
    assert charges.read_text().splitlines() == ["1", "after 1"]


def test_a_server_that_is_killed_in_a_route_leaves_a_doubt_that_is_shown(
    app: Oncely, charges: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    path = f"/charge?gate={gate}"
    with ThreadPoolExecutor(1) as pool:
        with serve(app.url, charges, module=MODULE) as server:
            running = pool.submit(post, server, {"order": "1"}, path=path)
            wait_until(lambda: charges.read_text() != "")
            assert post(server, {"order": "1"}, path=path).json()["code"] == "request_in_flight"
            server.end(signal.SIGKILL)
            with pytest.raises(httpx2.TransportError):
                running.result()
        gate.touch()
        let_days_pass(app, 0.01)
        with serve(app.url, charges, module=MODULE) as server:
            assert post(server, {"order": "1"}, path=path).json()["code"] == "outcome_unknown"
    assert charges.read_text().splitlines() == ["1"]
