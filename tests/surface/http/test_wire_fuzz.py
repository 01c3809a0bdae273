"""Mutated requests over raw sockets. The server fails at none of them, and runs no request that
another parser, h11, does not find in the same bytes."""

import json
import random
import resource
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import h11
import pytest

from oncely import Oncely
from tests import seed
from tests.crash.load import TORTURE
from tests.engine.steps import sql
from tests.surface.http.server import Client, as_served
from tests.surface.http.test_connections import statuses
from tests.waiting import PATIENCE_SECONDS

CONNECTIONS = 300 if TORTURE == 1 else 20_000
AT_ONCE = 50
SILENCE_SECONDS = 0.3
"""A request that is not whole is not answered: after that time it is given up."""
EMPTY = [("content-length", "0")]
GROWTH_LIMIT_KB = 64 * 1024
LINES = [
    b"Connection: Upgrade, HTTP2-Settings",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Upgrade: h2c",
    b"upgrade: websocket",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: gzip, chunked",
    b"Content-Length: 0",
    b"Content-Length: 5",
    b"Content-Length: 70",
    b"Content-Length: -1",
    b"Content-Length: 1, 1",
    b"Expect: 100-continue",
    b"Trailer: Authorization",
    b"Host: other",
    b"Idempotency-Key: k",
    b"Content-Encoding: gzip",
    b"X: " + b"y" * 9_000,
    b" folded",
    b"no colon",
    b"Space : before the colon",
]


def published(payload: str, dice: random.Random) -> bytes:
    body = b'{"payload": "%s"}' % payload.encode()
    lines = [
        b"POST /v1/queues/q/jobs HTTP/1.1",
        b"Host: 127.0.0.1",
        b"Content-Type: application/json",
    ]
    if dice.random() < 0.3:
        lines.append(b"Transfer-Encoding: chunked")
        cut = dice.randrange(1, len(body))
        parts = [body[:cut], body[cut:], b""]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    else:
        lines.append(b"Content-Length: %d" % len(body))
    return mutated(lines, dice) + body


def mutated(lines: list[bytes], dice: random.Random) -> bytes:
    """The head, with lines more, less, twice or changed."""
    for _ in range(dice.choice([0, 0, 1, 1, 2, 3])):
        place = dice.randrange(1, len(lines) + 1)
        match dice.randrange(4):
            case 0 | 1:
                lines.insert(place, dice.choice(LINES))
            case 2 if place < len(lines):
                lines.pop(place)
            case 3 if place < len(lines):
                lines[place] = dice.choice([lines[place].upper(), lines[place].swapcase()])
    end = b"\r\n" if dice.random() < 0.97 else b"\n"
    return end.join([*lines, b"", b""])


def conversation(dice: random.Random, number: int) -> bytes:
    """Some requests on one connection. A body may hold a request that nobody has sent."""
    parts = []
    for turn in range(dice.randint(1, 3)):
        inner = published(f"inner {number} {turn}", dice) if dice.random() < 0.3 else b""
        parts.append(published(f"outer {number} {turn}", dice) + inner)
    sent = b"".join(parts)
    if dice.random() < 0.2:
        sent = sent[: dice.randrange(1, len(sent))]
    if dice.random() < 0.2:
        place = dice.randrange(len(sent))
        sent = sent[:place] + bytes([dice.randrange(256)]) + sent[place + 1 :]
    return sent


def bodies(sent: bytes) -> list[bytes]:
    """Of the whole requests, as h11 reads them; up to where it refuses to go on."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(sent)
    found: list[bytes] = []
    body = b""
    try:
        while True:
            event = connection.next_event()
            match event:
                case h11.NEED_DATA | h11.PAUSED:
                    if connection.their_state in (h11.IDLE, h11.SEND_BODY):  # it wants more
                        return found
                    connection.send(h11.Response(status_code=200, headers=EMPTY))
                    connection.send(h11.EndOfMessage())
                    if connection.our_state is not h11.DONE:  # "Connection: close"
                        return found
                    connection.start_next_cycle()
                case h11.Request():
                    body = b""
                case h11.Data():
                    body += bytes(event.data)
                case h11.EndOfMessage():
                    found.append(body)
                case _:
                    return found
    except h11.ProtocolError:
        return found


def payload(body: bytes) -> object:
    try:
        return json.loads(body)["payload"]
    except (ValueError, KeyError, TypeError):
        return None


def talk(address: tuple[str, int], sent: list[bytes], dice: random.Random) -> list[bytes]:
    """What is answered to each, all at once."""
    answers = [b"" for _ in sent]
    with ExitStack() as stack, selectors.DefaultSelector() as poll:
        for number, data in enumerate(sent):
            wire = stack.enter_context(socket.create_connection(address, PATIENCE_SECONDS))
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(wire, selectors.EVENT_READ, number)
            size = dice.choice([len(data), len(data), 200, 17]) or 1
            with suppress(OSError):  # the server has closed it
                for start in range(0, len(data), size):
                    wire.sendall(data[start : start + size])
        while poll.get_map() and (found := poll.select(SILENCE_SECONDS)):
            for key, _ in found:
                assert isinstance(key.fileobj, socket.socket)
                try:
                    data = key.fileobj.recv(65_536)
                except OSError:
                    data = b""
                answers[key.data] += data
                if not data:
                    poll.unregister(key.fileobj)
    return answers


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Oncely]:
    with Oncely(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        app.migrate()
        yield app


@pytest.mark.timeout(3600 if TORTURE > 1 else 300)
def test_no_request_is_run_that_was_not_sent_whole(app: Oncely) -> None:
    dice = seed.dice("wire")
    sent = [conversation(dice, number) for number in range(CONNECTIONS)]
    with as_served(app) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        began_kb = 0
        for first in range(0, CONNECTIONS, AT_ONCE):
            part = sent[first : first + AT_ONCE]
            for asked, answer in zip(part, talk((host, int(port)), part, dice), strict=True):
                assert all(status < 500 for status in statuses(answer)), asked
            if first == AT_ONCE:
                began_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with Client(url) as client:
            assert client.get("/healthz").status_code == 200
            assert client.publish("q", "the last").status_code == 201
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began_kb
    assert grown_kb < GROWTH_LIMIT_KB
    whole = {repr(payload(body)) for each in sent for body in bodies(each)}
    ran = [repr(json.loads(each)) for (each,) in sql(app, "select payload from oncely.job")]
    assert [each for each in ran if each not in whole] == ["'the last'"]
    assert len(ran) > CONNECTIONS / 10
