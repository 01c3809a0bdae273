"""A proxy before an HTTP server that cuts the client off where a test says: before the server gets
the request, or after the server has answered."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self

from tests.cluster import free_port

Cut = Literal["before", "after"]


class Cutting:
    """`decide(line)` is asked with the first line of each request (`POST /v1/… HTTP/1.1`)."""

    def __init__(self, url: str, decide: Callable[[str], Cut | None]) -> None:
        self.lead_to(url)
        self._decide = decide
        self._listener = socket.create_server(("127.0.0.1", free_port()))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, url: str) -> None:
        """New connections lead there."""
        host, _, port = url.removeprefix("http://").partition(":")
        self._server = (host, int(port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._server) as server:
            while request := _message(client):
                cut = self._decide(request.partition(b"\r\n")[0].decode())
                if cut == "before":
                    self.cuts += 1
                    return
                server.sendall(request)
                answer = _message(server)
                if cut == "after":
                    self.cuts += 1
                if not answer or cut == "after":
                    return
                client.sendall(answer)


def _message(end: socket.socket) -> bytes:
    """One whole message, with the body that its head announces; empty at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = end.recv(65_536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    size = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    while len(body) < size:
        body += end.recv(65_536)
    return head + b"\r\n\r\n" + body
