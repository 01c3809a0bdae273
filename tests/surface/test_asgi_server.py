"""`IdempotencyMiddleware` in real servers: two at once, killed, paused; clients that hang up."""

import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from oncely import InProgress, Oncely
from tests.engine.steps import let_days_pass, sql
from tests.surface.asgi_server import Server, serve
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture
def charges(tmp_path: Path) -> Path:
    path = tmp_path / "charges"
    path.touch()
    return path


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def post(server: Server, order: str = "1", *, key: str = "k", path: str = "/charge") -> Any:
    return httpx2.post(
        server.url + path,
        json={"order": order},
        headers={"Idempotency-Key": key},
        timeout=PATIENCE_SECONDS,
        verify=False,  # no certificates have to be read for it
    )


def lines(charges: Path) -> list[str]:
    return charges.read_text().splitlines()


def code(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["code"]


def test_two_servers_and_many_clients_charge_an_order_once(
    app: Oncely, charges: Path, pool: ThreadPoolExecutor
) -> None:
    with serve(app.url, charges) as one, serve(app.url, charges) as other:
        for order in map(str, range(5)):

            def charge(n: int, order: str = order) -> Any:
                while True:
                    answer = post((one, other)[n % 2], order, key=f"order:{order}")
                    if answer.status_code != 409:
                        return answer
                    assert code(answer) == (409, "request_in_flight")

            answers = list(pool.map(charge, range(8)))
            assert {answer.status_code for answer in answers} == {201}
            assert len({answer.text for answer in answers}) == 1
            replayed = [answer.headers.get("Idempotent-Replayed") for answer in answers]
            assert sorted(replayed, key=str) == [None, *["true"] * 7]
    assert lines(charges) == [str(order) for order in range(5)]


def begin(pool: ThreadPoolExecutor, server: Server, charges: Path, gate: Path) -> "Future[Any]":
    """A charge that has been made, and whose response waits for the gate."""
    before = len(lines(charges))
    running = pool.submit(post, server, path=f"/charge?gate={gate}")
    wait_until(lambda: len(lines(charges)) > before)
    return running


def test_a_server_that_is_killed_in_the_middle_leaves_a_doubt_that_is_shown(
    app: Oncely, charges: Path, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    gate = tmp_path / "gate"
    path = f"/charge?gate={gate}"
    with serve(app.url, charges) as server:
        running = begin(pool, server, charges, gate)
        server.end(signal.SIGKILL)
        with pytest.raises(httpx2.TransportError):
            running.result()
    gate.touch()
    with serve(app.url, charges) as server:
        assert code(post(server, path=path)) == (409, "request_in_flight")
        let_days_pass(app, 0.01)
        for _ in range(2):
            assert code(post(server, path=path)) == (409, "outcome_unknown")
    assert lines(charges) == ["1"]
    with serve(app.url, charges, on_unknown="run") as server:
        assert post(server, path=path).status_code == 201
        assert post(server, path=path).headers["Idempotent-Replayed"] == "true"
    assert lines(charges) == ["1", "1"], "declared: it may run again"


@pytest.mark.parametrize("happened", [True, False])
def test_a_person_ends_the_doubt_that_a_killed_server_left(
    app: Oncely, charges: Path, tmp_path: Path, pool: ThreadPoolExecutor, happened: bool
) -> None:
    gate = tmp_path / "gate"
    path = f"/charge?gate={gate}"
    with serve(app.url, charges) as server:
        running = begin(pool, server, charges, gate)
        [(key,)] = sql(app, "select key from oncely.request")
        with pytest.raises(InProgress):
            app.resolve_request(key, happened=False, caller="")
        server.end(signal.SIGKILL)
        with pytest.raises(httpx2.TransportError):
            running.result()
    gate.touch()
    with serve(app.url, charges) as server:
        let_days_pass(app, 0.01)
        assert code(post(server, path=path)) == (409, "outcome_unknown")
        [doubt] = app.requests_in_doubt()
        if happened:
            app.resolve_request(doubt.key, happened=True, status=202, body={"charge": 1})
        else:
            app.resolve_request(doubt.key, happened=False)
        answer, repeat = post(server, path=path), post(server, path=path)
    assert answer.status_code == repeat.status_code == (202 if happened else 201)
    assert answer.json() == repeat.json()
    assert (answer.headers.get("Idempotent-Replayed") == "true") == happened
    assert repeat.headers["Idempotent-Replayed"] == "true"
    if happened:
        assert answer.json() == {"charge": 1}
        assert answer.headers["content-type"] == "application/json"
    assert len(lines(charges)) == (1 if happened else 2)


def test_a_server_that_wakes_up_late_does_not_overwrite_its_successor(
    app: Oncely, charges: Path, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    gate = tmp_path / "gate"
    path = f"/charge?gate={gate}"
    with serve(app.url, charges) as late, serve(app.url, charges, on_unknown="run") as next_one:
        running = begin(pool, late, charges, gate)
        late.signal(signal.SIGSTOP)
        let_days_pass(app, 0.01)
        gate.touch()
        successor = post(next_one, path=path)
        assert successor.json()["by"] == next_one.process.pid
        late.signal(signal.SIGCONT)
        assert running.result().json()["by"] == late.process.pid
        for server in (late, next_one):
            repeat = post(server, path=path)
            assert (repeat.text, repeat.status_code) == (successor.text, 201)


def test_a_server_that_wakes_up_late_ends_the_doubt_if_nobody_ran_after_it(
    app: Oncely, charges: Path, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    gate = tmp_path / "gate"
    path = f"/charge?gate={gate}"
    with serve(app.url, charges) as late, serve(app.url, charges) as other:
        running = begin(pool, late, charges, gate)
        late.signal(signal.SIGSTOP)
        let_days_pass(app, 0.01)
        assert code(post(other, path=path)) == (409, "outcome_unknown")
        gate.touch()
        late.signal(signal.SIGCONT)
        assert running.result().status_code == 201
        assert post(other, path=path).text == running.result().text
    assert lines(charges) == ["1"]


@pytest.mark.parametrize("path", ["/charge", "/stream"])
def test_a_client_that_hangs_up_gets_the_response_when_it_comes_again(
    app: Oncely, charges: Path, tmp_path: Path, path: str
) -> None:
    gate = tmp_path / "gate"
    path = f"{path}?gate={gate}"
    with serve(app.url, charges) as server:
        where = urlsplit(server.url)
        body = json.dumps({"order": "1"}, separators=(",", ":")).encode()
        with socket.create_connection((where.hostname, where.port)) as client:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: lines(charges) != [])
        gate.touch()
        answers = [post(server, path=path)]
        while answers[-1].status_code == 409:
            assert code(answers[-1]) == (409, "request_in_flight")
            answers.append(post(server, path=path))
        assert answers[-1].headers["Idempotent-Replayed"] == "true"
        assert answers[-1].text in (
            "first last",
            json.dumps({"by": server.process.pid, "order": "1"}, separators=(",", ":")),
        )
    assert len(lines(charges)) == 1


def test_a_server_that_is_told_to_stop_lets_its_requests_end(
    app: Oncely, charges: Path, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    gate = tmp_path / "gate"
    with serve(app.url, charges) as server:
        running = begin(pool, server, charges, gate)
        server.signal(signal.SIGTERM)
        gate.touch()
        assert running.result().status_code == 201
        server.process.wait()
    with serve(app.url, charges) as server:
        repeat = post(server, path=f"/charge?gate={gate}")
        assert (repeat.text, repeat.headers["Idempotent-Replayed"]) == (
            running.result().text,
            "true",
        )
