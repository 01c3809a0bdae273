"""`oncely serve` and `oncely token` as processes: they start, refuse, share, and stop in order."""

import json
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from oncely import Oncely
from oncely.surface.http.run import listen
from tests.engine.steps import claim_one, let_days_pass
from tests.surface.command import Command
from tests.surface.http.server import Client, as_process
from tests.waiting import PATIENCE_SECONDS, wait_until

KEY = r"oncely_[0-9a-f]{12}_[0-9A-Za-z]{43}\n"


def test_a_key_is_printed_once_and_alone(at: Command, app: Oncely) -> None:
    made = at("token", "create", "--scope", "publish,read", "--queue", "a,b", "--queue", "c")
    assert made.code == 0
    key = made.out.strip()
    assert made.out == f"{key}\n"
    [token] = app.tokens()
    assert (token.scopes, token.queues) == (("publish", "read"), ("a", "b", "c"))
    listed = at("token", "list")
    assert f"{token.token_id}  publish,read for a, b, c" in listed.out
    assert key not in listed.out
    rotated = at("token", "rotate", token.token_id, "--overlap", "60", "--json").json()
    assert rotated["key"] != key
    assert at("token", "revoke", token.token_id).out == f"revoked token {token.token_id}\n"
    assert [each["valid"] for each in at("token", "list", "--json").json()] == [False, True]


def test_bad_calls_of_token_are_one_line_and_exit_2(here: Command, sqlite_url: str) -> None:
    for args in (
        ("create",),
        ("create", "--scope", "write"),
        ("create", "--scope", ""),
        ("create", "--scope", "read", "--queue", "no name"),
        ("create", "--scope", "read", "--expires-in", "-1"),
        ("create", "0123456789ab", "--scope", "read"),
        ("list", "--scope", "read"),
        ("revoke",),
        ("rotate",),
        ("delete", "x"),
    ):
        done = here("token", *args, "--url", sqlite_url)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), args
    assert here("migrate", "--url", sqlite_url).code == 0
    done = here("token", "revoke", "0123456789ab", "--url", sqlite_url)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "oncely token list" in done.err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ONCELY_PUSH_ALLOW", "10.0.0.0/33"),
        ("ONCELY_SECRET_KEY", "hush"),
        ("ONCELY_SECRET_KEY", ""),
    ],
)
def test_the_settings_of_push_are_checked_at_the_start(
    here: Command, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    done = here("serve", "--port", "0", "--url", sqlite_url)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"${name}" in done.err
    assert "hush" not in done.err


def test_it_does_not_listen_to_others_without_a_token(here: Command, sqlite_url: str) -> None:
    done = here("serve", "--host", "0.0.0.0", "--port", "0", "--url", sqlite_url)
    assert (done.code, done.out) == (2, "")
    assert "oncely token create" in done.err
    assert "--open-to-everyone" in done.err


@pytest.mark.parametrize("how", ["told", "token"])
def test_it_listens_to_others_with_a_token_or_when_told_so(sqlite_url: str, how: str) -> None:
    with Oncely(sqlite_url) as app:
        key = app.create_token(["publish"]).key if how == "token" else None
    options = ["--open-to-everyone"] if how == "told" else []
    with as_process(sqlite_url, "--host", "0.0.0.0", *options) as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        with Client(url, key) as client:
            assert client.publish("q", 1).status_code == 201
        with Client(url) as stranger:
            assert stranger.publish("q", 1).status_code == (201 if how == "told" else 401)


def test_bad_calls_of_serve_are_one_line(
    here: Command, oncely: Command, sqlite_url: str, postgres_url: str
) -> None:
    for args in (
        ("--port", "70000"),
        ("--port", "x"),
        ("--processes", "0"),
        ("--host", "not an address"),
        ("--requests-per-second", "0"),
        ("--max-body-bytes", "0"),
        ("--grace-seconds", "-1"),
        ("--trusted-proxy", "proxy.example"),
    ):
        done = here("serve", *args, "--url", sqlite_url)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), args
    done = here("serve", "--url", postgres_url)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "oncely migrate" in done.err
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        done = oncely("serve", "--port", port, "--url", sqlite_url)
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert "in use" in done.err


def test_small_answers_are_sent_at_once() -> None:
    """Nagle's algorithm would hold each back for 40 ms; asyncio turns it off by the protocol."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_several_processes_share_the_work_and_all_stop(url: str, app: Oncely) -> None:
    with as_process(url, "--processes", "2") as server:
        with Client(server.url) as client:
            wait_until(lambda: client.get("/readyz").status_code == 200)

        def publish(n: int) -> None:
            with Client(server.url) as client:
                answer = client.publish("q", n // 2, idempotencyKey=f"k:{n // 2}")
                assert answer.status_code in (200, 201)

        threads = [threading.Thread(target=publish, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        children = children_of(server.process.pid)
        assert len(children) == 2
        os.kill(children[0], signal.SIGKILL)
        wait_until(lambda: len(set(children_of(server.process.pid)) - set(children)) == 1)
        with Client(server.url) as client:
            assert client.publish("q", "after").status_code == 201
        children = children_of(server.process.pid)
        code, log = server.end(signal.SIGTERM)
        assert code == 0, log
        assert "another takes its place" in log
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert len(app.jobs()) == 11


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def test_what_is_under_way_comes_to_its_end_when_it_is_told_to_stop(url: str, app: Oncely) -> None:
    """A request whose body is half sent when the signal comes is still answered."""
    body = b'{"payload": 1, "idempotencyKey": "k:1"}'
    with as_process(url) as server:
        with open_line(server.url) as half, open_line(server.url) as idle:
            head = "POST /v1/queues/q/jobs HTTP/1.1\r\nHost: [::]\r\nX-Request-Id: half\r\n"
            kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            half.sendall(f"{head}{kind}".encode() + body[:10])
            # It is sent later, so what it follows has been read when it is answered.
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: [::]\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += idle.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 200")
            server.process.send_signal(signal.SIGTERM)
            # A server that stops first closes the lines on which nothing is under way. Then it
            # looks at the others, again and again.
            assert idle.recv(65_536) == b""
            seen = looks(server.process.pid) + 10
            wait_until(
                lambda: looks(server.process.pid) >= seen or server.process.poll() is not None
            )
            half.sendall(body[10:])
            answer = half.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 201"), answer
        code, log = server.wait()
    assert code == 0
    assert "Traceback" not in log
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["status"] for line in lines if line.get("request_id") == "half"] == [201]
    assert len(app.jobs()) == 1


def looks(pid: int) -> int:
    """How often the process had nothing more to do and slept."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def open_line(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)


def test_a_server_keeps_its_store_in_order(url: str, app: Oncely) -> None:
    """Its workers may all be far away: it takes back what the dead leave behind."""
    app.enqueue("k", queue="q")
    claim_one(app, "q")
    let_days_pass(app, 1)
    with as_process(url):
        wait_until(lambda: app.jobs(state="pending"))
