"""A TCP proxy before PostgreSQL that reads the protocol, so that it can fail at a chosen message.

It forwards whole messages. A `Fault` waits for a statement; when the client sends it, the fault
happens once: the connection is cut before the server gets the statement, or after the server has
carried it out and answered; or the answer, or the statement itself, is held back for a while.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from oncely.flow import drive
from tests.cluster import free_port
from tests.waiting import PATIENCE_SECONDS, wait_until

_SSL_REQUEST = 80877103
_GSS_REQUEST = 80877104

When = Literal["before", "after", "hold", "late", "unsynced", "unsent"]
Hook = Callable[[], None]


def nothing() -> None:
    return


@dataclass
class Fault:
    """What happens when the client sends a statement that contains `text`.

    - before: the server never gets it, and the client's connection is cut.
    - after: the server has carried it out and answered; the client's connection is cut instead.
    - hold: the server has answered; the client gets the answer when the hook has returned.
    - late: the client's connection is cut; the server gets the statement when the hook has
      returned, and carries it out for nobody.
    - unsynced: the server answers, but is not told to commit; the hook runs, and what the server
      says after it goes to the client.
    - unsent: like unsynced, but the server gets neither the statement nor what follows it in the
      same message. It answers what it got before.

    But for "late", the hook runs while the client waits. `skip` lets so many such statements
    pass first. `prepares`: the message is the one that prepares the statement, alone.
    `stays_open`: the client gets what the server says at the end of its session, but does not see
    that the connection is closed. `happened` is set when all is over.
    """

    text: str
    when: When = "after"
    hook: Hook = nothing
    skip: int = 0
    prepares: bool = False
    stays_open: bool = False
    happened: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def run_hook(self) -> None:
        try:
            self.hook()
        except BaseException as error:
            self.error = error


class Proxy:
    """`with Proxy(url) as proxy:` gives `proxy.url`, the same database through the proxy."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._armed: list[Fault] = []
        self._sockets: set[socket.socket] = set()
        # Tests knock here after it has closed: the port must not become another one's.
        port = free_port()
        self._listener = socket.create_server(("127.0.0.1", port))
        user = f"{parts.username}@" if parts.username else ""
        if parts.password:
            user = f"{parts.username}:{parts.password}@"
        self.url = urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
        self._refusing = False
        self._speaks = threading.Event()
        self._speaks.set()
        self.connections = 0
        self.refused = 0
        """How many of the connections were refused."""
        self.process_id: int | None = None
        """What clients are told is the process id of their session, if it is not the truth."""
        self.seen: list[str] = []
        """The statements that clients sent, in order; of a prepared one, its text."""
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.speak()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        failed = [fault.error for fault in self._armed if fault.error is not None]
        if failed:
            raise AssertionError("a hook of the proxy failed") from failed[0]

    def arm(self, *faults: Fault) -> None:
        """The faults are looked at in order; each happens once."""
        with self._lock:
            self._faults += faults
            self._armed += faults

    def cut(self) -> None:
        """End every connection, as a network does: without a word."""
        with self._lock:
            sockets = list(self._sockets)
        for end in sockets:
            _reset(end)

    def refuse(self) -> None:
        """End every connection and let no other through, until `relent`."""
        with self._lock:
            self._refusing = True
        self.cut()

    def relent(self) -> None:
        with self._lock:
            self._refusing = False

    def fall_silent(self) -> None:
        """Take everything and pass nothing on, until `speak`: as a network does that drops
        packets, or a server whose processes are frozen. Connections stay open."""
        self._speaks.clear()

    def speak(self) -> None:
        self._speaks.set()

    @property
    def pending(self) -> int:
        """How many faults have not happened."""
        with self._lock:
            return len(self._faults)

    def _due(self, text: str, *, prepares: bool) -> Fault | None:
        with self._lock:
            if not prepares:
                self.seen.append(text)
            for fault in self._faults:
                # A BEGIN names its isolation level, and is no COMMIT.
                if fault.prepares == prepares and fault.text in text.replace("READ COMMITTED", ""):
                    if fault.skip:
                        fault.skip -= 1
                        return None
                    self._faults.remove(fault)
                    return fault
        return None

    def _start(self, target: Callable[..., None], *args: object) -> None:
        threading.Thread(target=target, args=args, daemon=True, name="proxy").start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            # Under the lock: whoever refuses or cuts finds it let through and listed, or neither.
            with self._lock:
                self.connections += 1
                self.refused += self._refusing
                refused = self._refusing
                if not refused:
                    self._sockets.add(client)
            if refused:
                _reset(client)
            else:
                self._start(_Session(self, client, self._server).serve)


def back_at_the_first_wait(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The store comes back once the end of an effect could not be written: when whoever has it is
    about to wait before it tries again. The waits, as they come."""
    waits: list[float] = []
    next_wait = drive._next_wait

    def relent_and_wait(*args: Any) -> float:
        try:
            waits.append(next_wait(*args))
        finally:
            proxy.relent()
        return waits[-1]

    monkeypatch.setattr(drive, "_next_wait", relent_and_wait)
    return waits


def terminate_what_has_answered(url: str) -> None:
    """End the session of ours that has answered, and waits for the end of the message."""
    with psycopg.connect(url, autocommit=True) as other:
        waits = """select pg_terminate_backend(pid, 60000) from pg_stat_activity
            where application_name like 'oncely%' and state = 'active'
                and wait_event = 'ClientRead' and datname = current_database()"""
        wait_until(lambda: other.execute(waits).fetchall(), "the server has answered")


class _Session:
    def __init__(self, proxy: Proxy, client: socket.socket, server: tuple[str, int]) -> None:
        self._proxy = proxy
        self._client = client
        self._address = server
        self._prepared: dict[bytes, str] = {}
        self._fault: Fault | None = None
        """Set by the client's side, carried out by the server's when the answer is complete."""
        self._client_closes = False
        """Whether the client is to read all that the server has said before its end."""
        self._stays_open = False

    def serve(self) -> None:
        try:
            self._proxy._speaks.wait()
            self._server = socket.create_connection(self._address)
        except OSError:
            self._forget(self._client)
            return
        with self._proxy._lock:
            self._proxy._sockets.add(self._server)
        try:
            for end in (self._client, self._server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open()
            self._proxy._start(self._answers)
            self._requests()
        except (OSError, EOFError):
            pass
        finally:
            self._end()

    def _open(self) -> None:
        """The first message has no type. Encryption is refused, then the real one comes."""
        while True:
            (size,) = struct.unpack("!i", _exactly(self._client, 4))
            body = _exactly(self._client, size - 4)
            if struct.unpack("!i", body[:4])[0] in (_SSL_REQUEST, _GSS_REQUEST):
                self._client.sendall(b"N")
                continue
            self._server.sendall(struct.pack("!i", size) + body)
            return

    def _requests(self) -> None:
        while True:
            kind, body = _message(self._client)
            self._proxy._speaks.wait()
            text = self._statement(kind, body)
            fault = None if text is None else self._proxy._due(text, prepares=kind == b"P")
            if fault is not None and fault.when == "before":
                self._carry_out(fault)
                return
            if fault is not None and fault.when == "late":
                self._send_late(fault, kind, body)
                return
            if fault is not None and fault.when in ("unsynced", "unsent"):
                self._withhold_sync(fault, kind, body)
                continue
            if fault is not None:
                self._fault = fault
            self._server.sendall(_packed(kind, body))

    def _withhold_sync(self, fault: Fault, kind: bytes, body: bytes) -> None:
        while kind != b"S":
            if fault.when == "unsynced":
                self._server.sendall(_packed(kind, body))
            kind, body = _message(self._client)
        self._client_closes, self._stays_open = True, fault.stays_open
        self._server.sendall(_packed(b"H", b""))  # a flush: the answers, and no commit
        fault.run_hook()
        fault.happened.set()

    def _send_late(self, fault: Fault, kind: bytes, body: bytes) -> None:
        messages = _packed(kind, body)
        while kind not in (b"Q", b"S"):
            kind, body = _message(self._client)
            messages += _packed(kind, body)
        _reset(self._client)
        fault.run_hook()
        self._fault = fault
        self._server.sendall(messages)
        fault.happened.wait(PATIENCE_SECONDS)

    def _statement(self, kind: bytes, body: bytes) -> str | None:
        """The text of what is asked to run or to be prepared, or None for other messages."""
        if kind == b"Q":
            return body.rstrip(b"\0").decode()
        if kind == b"P":
            name, text = body.split(b"\0", 2)[:2]
            self._prepared[name] = text.decode()
            return self._prepared[name]
        if kind == b"B":
            return self._prepared.get(body.split(b"\0", 2)[1], "")
        return None

    def _answers(self) -> None:
        """Whole answers are kept back while a fault is due: up to the server's "ready"."""
        kept = b""
        try:
            while True:
                kind, body = _message(self._server)
                self._proxy._speaks.wait()
                if kind == b"K" and self._proxy.process_id is not None:
                    body = struct.pack("!i", self._proxy.process_id) + body[4:]
                kept += _packed(kind, body)
                fault = self._fault
                if fault is not None and kind != b"Z":
                    continue
                if fault is not None:
                    self._fault = None
                    self._carry_out(fault)
                    if fault.when != "hold":
                        return
                self._client.sendall(kept)
                kept = b""
        except (OSError, EOFError):
            pass
        finally:
            if self._stays_open:
                pass
            elif self._client_closes:
                with suppress(OSError):
                    self._client.shutdown(socket.SHUT_WR)
            else:
                self._end()

    def _carry_out(self, fault: Fault) -> None:
        if fault.when != "late":
            fault.run_hook()
        if fault.when != "hold":
            self._end()
        fault.happened.set()

    def _end(self) -> None:
        self._forget(self._client, self._server)

    def _forget(self, *ends: socket.socket) -> None:
        for end in ends:
            _reset(end)
        with self._proxy._lock:
            self._proxy._sockets.difference_update(ends)


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _exactly(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _message(end: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(end, 5)
    return head[:1], _exactly(end, struct.unpack("!i", head[1:])[0] - 4)


def _packed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body
