"""A wire-tap before PostgreSQL that counts round trips: how often an answer was waited for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import quote, urlencode

_CHUNK_BYTES: Final = 65_536
_ACCEPT_SECONDS: Final = 0.1


class Tap:
    """`url` leads to the same database, through us. What passes is not looked into, so that it may
    be encrypted; an answer that nobody asked for, such as a notification, is no round trip."""

    def __init__(self, url: str, listener: socket.socket, target: tuple[str, int] | str) -> None:
        self.url = url
        self.round_trips = 0
        self._listener = listener
        self._target = target
        self._lock = threading.Lock()
        self._open: list[threading.Thread] = []
        self._closed = False

    def serve(self) -> None:
        self._listener.settimeout(_ACCEPT_SECONDS)
        while not self._closed:
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._carry, args=(client,), daemon=True)
                self._open.append(thread)
                thread.start()

    def wait_for_sessions(self) -> None:
        """Until the server has ended the sessions of all connections, which the clients have closed
        by now."""
        while self._open:
            self._open.pop().join()

    def close(self) -> None:
        self._closed = True

    def _carry(self, client: socket.socket) -> None:
        client.settimeout(None)
        if isinstance(self._target, str):
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
        else:
            server = socket.create_connection(self._target)
        asked = threading.Event()
        back = threading.Thread(target=self._answers, args=(server, client, asked), daemon=True)
        with closing(client), closing(server):
            for one in (client, server):
                if one.family != socket.AF_UNIX:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back.start()
            with suppress(OSError):
                while data := client.recv(_CHUNK_BYTES):
                    asked.set()
                    server.sendall(data)
            with suppress(OSError):
                server.shutdown(socket.SHUT_WR)
            back.join()

    def _answers(
        self, server: socket.socket, client: socket.socket, asked: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK_BYTES):
                if asked.is_set():
                    asked.clear()
                    with self._lock:
                        self.round_trips += 1
                with suppress(OSError):  # the session ends later than its client
                    client.sendall(data)
            client.shutdown(socket.SHUT_WR)


@contextmanager
def tapped(url: str) -> Iterator[Tap]:
    """Listens as the server does: on a port of this machine, or on a socket in a folder."""
    import psycopg  # an extra, which is there where there is a URL of PostgreSQL

    with psycopg.connect(url) as connection:
        info = connection.info
        host, at, port, password = info.host, info.hostaddr, info.port, info.password
    known = psycopg.conninfo.conninfo_to_dict(url)
    with TemporaryDirectory(prefix="oncely-tap-") as folder:
        target: tuple[str, int] | str
        if host.startswith("/"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(Path(folder, f".s.PGSQL.{port}")))
            target = str(Path(host, f".s.PGSQL.{port}"))
            way: dict[str, object] = {"host": folder, "port": port}
        else:
            listener = socket.socket()
            listener.bind(("127.0.0.1", 0))
            target = (at or host, port)
            # The host's name stays, for certificates are checked against it.
            way = {"host": host, "hostaddr": "127.0.0.1", "port": listener.getsockname()[1]}
        listener.listen(128)
        if password:
            way["password"] = password
        through = urlencode({**known, **way}, quote_via=quote)
        tap = Tap(f"postgresql://?{through}", listener, target)
        thread = threading.Thread(target=tap.serve, daemon=True)
        thread.start()
        try:
            yield tap
        finally:
            tap.close()
            thread.join()
            listener.close()
