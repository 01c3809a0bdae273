"""A TCP proxy that lets requests through and cuts the client off when the answer comes."""

import socket
import struct
import threading
from contextlib import suppress
from typing import Self

from tests.waiting import PATIENCE_SECONDS


class Cutter:
    """`with Cutter(url) as cutter:` gives `cutter.url`. The server has carried out what it
    answers, so a client that is cut off there cannot know that."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        self._thread = threading.Thread(target=self._accept, name="cutter")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.create_connection(self._server, timeout=PATIENCE_SECONDS) as server:
                self._serve(client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """One connection at a time: whoever is cut off connects again."""

        def forward() -> None:
            with suppress(OSError):
                while data := client.recv(65_536):
                    server.sendall(data)

        forwarding = threading.Thread(target=forward, name="cutter-forward")
        forwarding.start()
        if server.recv(65_536):
            self.cuts += 1
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        forwarding.join()
