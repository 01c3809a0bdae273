"""Real servers for tests: in a thread of this process, or as `oncely serve` in one of its own."""

import asyncio
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any

import httpx2
import uvicorn

from oncely import Oncely
from oncely.surface.http.run import listen, make_server
from oncely.surface.http.server import over
from oncely.surface.http.service import Service, Settings
from tests.surface.command import SCRIPT, environment
from tests.waiting import PATIENCE_SECONDS


class Client(httpx2.Client):
    """Closes what it is done with, and ignores the environment."""

    def __init__(self, url: str, key: str | None = None) -> None:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        # Without TLS there is nothing to verify, and certificates take a while to read.
        super().__init__(
            base_url=url,
            headers=headers,
            trust_env=False,
            verify=False,
            timeout=PATIENCE_SECONDS,
        )

    def publish(self, queue: str, payload: Any = None, **fields: Any) -> httpx2.Response:
        return self.post(f"/v1/queues/{queue}/jobs", json={"payload": payload, **fields})


@dataclass
class Running:
    url: str
    service: Service
    loop: "Future[asyncio.AbstractEventLoop]"
    server: uvicorn.Server

    def store_latencies(self) -> None:
        """What the server measured so far is in the store, and nothing of it is under way."""
        told = self.service.witness.tell()
        loop = self.loop.result(PATIENCE_SECONDS)
        asyncio.run_coroutine_threadsafe(told, loop).result(PATIENCE_SECONDS)


@contextmanager
def in_thread(app: Oncely, settings: Settings | None = None) -> Iterator[str]:
    """The server over this very app, on a port of its own; its address."""
    with running(app, settings) as server:
        yield server.url


@contextmanager
def running(app: Oncely, settings: Settings | None = None) -> Iterator[Running]:
    """Here it is uvicorn that begins and ends what goes on beside the requests, as it would in an
    app of the user's."""
    service = Service(app, settings or Settings())
    config = uvicorn.Config(
        over(service), lifespan="on", log_config=None, access_log=False, proxy_headers=False
    )
    with _in_thread(service, uvicorn.Server(config)) as server:
        yield server


@contextmanager
def as_served(app: Oncely, settings: Settings | None = None) -> Iterator[str]:
    """The server that `oncely serve` runs, in a thread of this process; its address."""
    service = Service(app, settings or Settings())
    with _in_thread(service, make_server(service, grace_seconds=1)) as server:
        yield server.url


@contextmanager
def _in_thread(service: Service, server: uvicorn.Server) -> Iterator[Running]:
    listening = listen("127.0.0.1", 0)
    loop: Future[asyncio.AbstractEventLoop] = Future()

    async def serve() -> None:
        loop.set_result(asyncio.get_running_loop())
        await server.serve(sockets=[listening])

    def run() -> None:
        asyncio.run(serve())

    thread = threading.Thread(target=run, name="server")
    thread.start()
    try:
        yield Running(f"http://127.0.0.1:{listening.getsockname()[1]}", service, loop, server)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)
        listening.close()
        assert not thread.is_alive()


@dataclass
class Process:
    url: str
    process: "subprocess.Popen[str]"
    log: "IO[str]"

    def end(self, number: int) -> tuple[int, str]:
        """The exit code, and what was logged."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        self.process.communicate(timeout=PATIENCE_SECONDS)
        self.log.seek(0)
        return self.process.returncode, self.log.read()


@contextmanager
def as_process(store: str, *options: str, port: int = 0, **env: str) -> Iterator[Process]:
    # Its log goes to a file: nobody reads it meanwhile, and a pipe that is full would stop it.
    with TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [SCRIPT, "serve", "--port", str(port), "--json", "--url", store, *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(**env),
        )
        assert process.stdout is not None
        try:
            made = Process("", process, log)
            line = process.stdout.readline()
            if not line:
                raise AssertionError(made.wait()[1])
            made.url = json.loads(line)["url"]
            yield made
        finally:
            process.kill()
            process.communicate()


def raw(url: str, request: bytes, *, hold: bool = False) -> bytes:
    """What the server answers to these very bytes, until it closes the connection. With `hold` it
    cannot know that there are no more."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        if not hold:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while data := connection.recv(65_536):
            answer += data
        return answer
