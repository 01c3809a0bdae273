"""A receiver of pushes on loopback that answers as it is told: well, badly, or not at all."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def job(self) -> Any:
        return json.loads(self.body)

    @property
    def previous(self) -> str:
        return self.headers["oncely-previous"]


Reply = Callable[[socket.socket, Request], None]


def status(code: int, *headers: str, body: bytes = b"ok") -> Reply:
    lines = [f"HTTP/1.1 {code} Told", *headers, f"Content-Length: {len(body)}", "", ""]
    return lambda peer, _: peer.sendall("\r\n".join(lines).encode() + body)


OK = status(200)


def raw(data: bytes, *, close: bool = True) -> Reply:
    """These bytes, whatever they are."""

    def reply(peer: socket.socket, _: Request) -> None:
        peer.sendall(data)
        if close:
            peer.shutdown(socket.SHUT_RDWR)

    return reply


def reset(peer: socket.socket, _: Request) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(peer.detach())


def silent(peer: socket.socket, _: Request) -> None:
    peer.recv(1)  # until the sender gives up


def drip(first: bytes) -> Reply:
    """The beginning at once, then a byte now and then, for as long as anybody reads."""

    def reply(peer: socket.socket, _: Request) -> None:
        peer.sendall(first)
        while True:
            time.sleep(0.05)
            peer.sendall(b"x")

    return reply


@dataclass
class Receiver:
    """`replies` are used up one by one; the last one stays."""

    replies: list[Reply]
    requests: list[Request] = field(default_factory=list)
    host: str = "127.0.0.1"
    port: int = 0
    connections: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._server = socket.create_server((self.host, self.port), backlog=512)
        self.port = self._server.getsockname()[1]
        self.url = f"http://{self.host}:{self.port}/hook?v=1"
        self._peers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._peers.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            file = peer.makefile("rb")
            while request := _read(file):
                with self._lock:
                    self.requests.append(request)
                    reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                reply(peer, request)
        except (OSError, ValueError):
            pass

    def close(self) -> None:
        for peer in (self._server, *self._peers):
            try:
                peer.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            peer.close()


def _read(file: Any) -> Request | None:
    line = file.readline().decode().strip()
    if not line:
        return None
    headers = {}
    while (header := file.readline().decode().strip()) != "":
        name, _, value = header.partition(": ")
        headers[name.lower()] = value
    return Request(line, headers, file.read(int(headers["content-length"])))


@contextmanager
def receiver(*replies: Reply, host: str = "127.0.0.1", port: int = 0) -> Iterator[Receiver]:
    made = Receiver(list(replies) or [OK], host=host, port=port)
    try:
        yield made
    finally:
        made.close()
