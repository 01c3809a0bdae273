"""The server as a process: it listens, serves, and comes to its end when it is told to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Final

import uvicorn

from oncely.model.errors import InvalidInput
from oncely.surface.http.connection import Connection
from oncely.surface.http.server import over
from oncely.surface.http.service import Service
from oncely.worker.loop import run_alone
from oncely.worker.signals import told_to_stop

_BACKLOG: Final = 2_048
KEEP_ALIVE_SECONDS = 20
"""How long a connection may be idle between two requests."""
WATCH_SECONDS = 1.0


class Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """They are ours: whoever waits in a call is to hear of them as well."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        watching = asyncio.create_task(self._watch_deadlines())
        try:
            await super().serve(sockets)
        finally:
            watching.cancel()

    async def _watch_deadlines(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.check_deadlines(loop.time())


def make_server(service: Service, *, grace_seconds: float) -> Server:
    config = uvicorn.Config(
        over(service),
        http=Connection,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=round(grace_seconds),
    )
    return Server(config)


def listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise InvalidInput(f"--host is {host!r}, which is no address of this machine") from None
    family, kind, _, _, address = found[0]
    # With its protocol named: only then does asyncio send small answers at once, not 40 ms later.
    listening = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(listening: socket.socket) -> bool:
    return ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback


async def serve(service: Service, listening: socket.socket, *, grace_seconds: float) -> None:
    """Until SIGTERM or SIGINT: then no more is taken, and what is under way comes to its end. A
    second signal does not wait for that."""
    server = make_server(service, grace_seconds=grace_seconds)

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True
        service.stop()

    with told_to_stop(stop):
        async with service.running(grace_seconds=grace_seconds):
            await server.serve(sockets=[listening])


def run(service: Service, listening: socket.socket, *, grace_seconds: float) -> None:
    run_alone(serve(service, listening, grace_seconds=grace_seconds))
