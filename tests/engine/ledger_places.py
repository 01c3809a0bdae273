"""Where ledgers are kept, for tests."""

import shutil
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import create_engine

from oncely import Ledger
from tests.waiting import wait_until


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        assert server.poll() is None, f"the server ended with {server.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            return False
        return True

    wait_until(answers, "the server answers")


def serve(command: list[str], port: int, folder: str) -> Iterator[None]:
    server = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port, server)
        yield
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _alchemy(url: str, closing: ExitStack) -> Any:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    closing.callback(engine.dispose)
    return engine


def _sqlite3(url: str, closing: ExitStack) -> Any:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)
    closing.callback(connection.close)
    return connection


def _psycopg(url: str, closing: ExitStack) -> Any:
    return closing.enter_context(psycopg.connect(url))


def _url(url: str, closing: ExitStack) -> Any:
    return url


PLACES: dict[str, tuple[str, Callable[[str, ExitStack], Any]]] = {
    "sqlite": ("sqlite_url", _url),
    "postgres": ("ledger_postgres", _url),
    "mysql": ("ledger_mysql", _url),
    "redis": ("redis_url", _url),
    "sqlalchemy-postgres": ("ledger_postgres", _alchemy),
    "sqlalchemy-sqlite": ("sqlite_url", _alchemy),
    "lent-sqlite3": ("sqlite_url", _sqlite3),
    "lent-psycopg": ("ledger_postgres", _psycopg),
}
SERVERS = ("sqlite", "postgres", "mysql", "redis")
"""Those where calls of one process can meet: one lent connection is one caller."""


class Place:
    """A ledger's place, and how to make more ledgers there."""

    def __init__(self, name: str, url: str, closing: ExitStack) -> None:
        self.name = name
        self.url = url
        self._closing = closing

    def ledger(self, **options: Any) -> Ledger:
        where = PLACES[self.name][1](self.url, self._closing)
        ledger = self._closing.enter_context(Ledger(where, **options))
        ledger.migrate()
        return ledger

    def key(self, name: str) -> str:
        """The servers are shared by all tests."""
        return name if self.url.startswith("sqlite") else f"{name}:{uuid4().hex[:8]}x"


everywhere = pytest.mark.parametrize("place", PLACES, indirect=True)
where_calls_meet = pytest.mark.parametrize("place", SERVERS, indirect=True)
