"""Oncely over HTTP: `oncely serve` in one process, 64 connections, every answer after its commit.

- `publish`: jobs put in by POST.
- `bare`: the same server and route without a store, for what the server alone can do.
- `push`: jobs sent to a receiver on this machine.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from base64 import b64encode
from typing import Any

from driving import Driver, WrongCountError, fill, main
from http_load import load
from oncely_driver import QUEUE, OncelyDriver, run
from serving import free_port, serving

NOT_YET = "not yet: this build has no `oncely serve`"


class HttpDriver(Driver):
    measures = ("publish", "bare", "push")

    def publish(self, jobs: int) -> dict[str, float]:
        store = self._store()
        port = free_port()
        bodies = [json.dumps({"kind": "noop", "payload": n}).encode() for n in range(jobs)]
        with serving(self._command(port), port, self._env()):
            seconds = load(f"http://127.0.0.1:{port}/v1/queues/{QUEUE}/jobs", bodies)
        stored = store.unsettled()
        if stored != jobs:
            raise WrongCountError(f"{stored} of {jobs} jobs are in the store")
        return {"rate": jobs / seconds}

    def bare(self, jobs: int) -> dict[str, float]:
        port = free_port()
        bodies = [json.dumps({"kind": "noop", "payload": n}).encode() for n in range(jobs)]
        command = [sys.executable, sys.argv[0], "work", "--url", str(port), "--mode", "bare"]
        with serving(command, port, dict(os.environ)):
            seconds = load(f"http://127.0.0.1:{port}/v1/queues/{QUEUE}/jobs", bodies)
        return {"rate": jobs / seconds}

    def push(self, jobs: int) -> dict[str, float]:
        """From the first request at the receiver until the store has all of them settled."""
        store = self._store()
        receiver = _Receiver()
        os.environ["ONCELY_PUSH_ALLOW"] = "127.0.0.0/8"
        from oncely.model.push import Push

        secret = f"whsec_{b64encode(bytes(32)).decode()}"
        target = Push(f"http://127.0.0.1:{receiver.port}/", secret=secret)
        store.app.set_queue(QUEUE, push=target)
        fill(store, jobs)
        port = free_port()
        with serving(self._command(port), port, self._env()):
            deadline = time.monotonic() + 120
            while left := store.unsettled():
                if time.monotonic() > deadline:
                    raise WrongCountError(f"{left} of {jobs} jobs were not delivered")
                time.sleep(0.05)
            ended = time.monotonic()
        if receiver.got != jobs:
            raise WrongCountError(f"{receiver.got} requests for {jobs} jobs")
        return {"rate": jobs / (ended - receiver.first)}

    def work(self, *, processes: int, mode: str) -> None:
        """The server without a store; the URL is its port."""
        import uvicorn
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        async def take(request: Request) -> JSONResponse:
            job = await request.json()
            return JSONResponse({"id": "0" * 32, "kind": job["kind"], "queue": QUEUE}, 201)

        route = Route("/v1/queues/{queue}/jobs", take, methods=["POST"])
        uvicorn.run(
            Starlette(routes=[route]),
            port=int(self.url),
            log_level="critical",
            access_log=False,
        )

    def _store(self) -> OncelyDriver:
        if importlib.util.find_spec("oncely.surface.http") is None:
            raise WrongCountError(NOT_YET)
        store = OncelyDriver(self.url)
        store.prepare()
        return store

    def _command(self, port: int) -> list[str]:
        command = [sys.executable, "-m", "oncely.surface.cli", "serve", "--port", str(port)]
        helped = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
        if helped.returncode:
            raise WrongCountError(NOT_YET)
        # The limit per key is there for strangers; the log would cost every request a line.
        return [*command, "--requests-per-second", "1000000", "--no-access-log"]

    def _env(self) -> dict[str, str]:
        return {**os.environ, "ONCELY_URL": self.url}


class _Receiver(threading.Thread):
    """Answers every request with 204, in a thread of its own."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.got = 0
        self.first = 0.0
        self.port = 0
        self._ready = threading.Event()
        self.start()
        self._ready.wait()

    def run(self) -> None:
        receiver = self

        class Answers(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self._transport = transport
                self._data = b""

            def data_received(self, data: bytes) -> None:
                self._data += data
                while True:
                    head, found, body = self._data.partition(b"\r\n\r\n")
                    if not found:
                        return
                    length = 0
                    for line in head.lower().split(b"\r\n"):
                        if line.startswith(b"content-length:"):
                            length = int(line[15:])
                    if len(body) < length:
                        return
                    self._data = body[length:]
                    receiver.first = receiver.first or time.monotonic()
                    receiver.got += 1
                    self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")

        async def serve() -> None:
            server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0)
            receiver.port = server.sockets[0].getsockname()[1]
            receiver._ready.set()
            await asyncio.Event().wait()

        run(serve())


main(HttpDriver)
