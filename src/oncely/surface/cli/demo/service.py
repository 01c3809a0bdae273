"""The payment service of the demo: an HTTP server on loopback, as a process of its own.

    POST /charges           charges a card; the same `Idempotency-Key` again gets the first answer
    POST /receipts          mails a receipt; takes no key, so every call is a mail
    GET  /receipts/{order}  which mail was sent for an order, if any

It says on which port it listens, and ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import msgspec

from oncely.surface.cli.demo.book import Book

THINKS_SECONDS: Final = (0.005, 0.06)
"""So long a request is on its way to the service, and its answer on the way back."""


class Assignment(msgspec.Struct, frozen=True):
    book: str


class Server(ThreadingHTTPServer):
    request_queue_size = 64

    def __init__(self, book: Book) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.book = book


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["order"]
        _think()
        match self.path:
            case "/charges":
                made = self.server.book.charge(order, self.headers.get("Idempotency-Key"))
            case "/receipts":
                made = self.server.book.send(order)
            case _:
                self.send_error(404)
                return
        _think()
        self._answer(made)

    def do_GET(self) -> None:
        folder, _, order = self.path.rpartition("/")
        if folder != "/receipts":
            self.send_error(404)
            return
        self._answer(self.server.book.find(int(order)))

    def _answer(self, made: int | None) -> None:
        with suppress(ConnectionError):  # who asked was killed meanwhile
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"id": made}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it, and a full pipe would block us."""


def _think() -> None:
    time.sleep(random.uniform(*THINKS_SECONDS))


def main() -> None:
    assignment = msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)
    server = Server(Book(Path(assignment.book)))
    Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    os.read(sys.stdin.fileno(), 1)  # its end: the demo is over, or whoever runs it is gone


if __name__ == "__main__":
    main()
