"""The stores that the systems run on, each empty at the start of every measure.

PostgreSQL from the wheel or the system, `fsync` and `synchronous_commit` on, as in the tests. Redis
from the system, with its log synced every second. SQLite: a file in an empty folder.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psycopg

from bench.peers.environments import CannotBeHad
from bench.peers.roster import Store
from tests.cluster import Cluster

DATABASE: Final = "bench"


class Stores:
    def __init__(self) -> None:
        self._stack = ExitStack()
        self._cluster: Cluster | None = None
        self._redis: _Redis | None = None
        self._folder: Path | None = None

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fresh(self, store: Store) -> str:
        """The URL of an empty store."""
        match store:
            case "postgres":
                cluster = self.cluster()
                cluster.drop_database(DATABASE)
                return cluster.create_database(DATABASE)
            case "redis":
                if self._redis is None:
                    self._redis = self._stack.enter_context(_Redis())
                self._redis.empty()
                return self._redis.url
            case "sqlite":
                if self._folder is not None:
                    shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = Path(tempfile.mkdtemp(prefix="oncely-bench-"))
                self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
                return f"sqlite:///{self._folder}/bench.db"

    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self._stack.enter_context(Cluster(own=True))
        return self._cluster

    def versions(self) -> dict[str, str]:
        found: dict[str, str] = {}
        with psycopg.connect(self.cluster().url()) as connection:
            for name in ("server_version", "fsync", "synchronous_commit"):
                row = connection.execute("select current_setting(%s)", (name,)).fetchone()
                assert row is not None
                found[name] = row[0]
        if self._redis is not None:
            found["redis"] = self._redis.version()
        return found


class _Redis:
    def __enter__(self) -> _Redis:
        program = shutil.which("redis-server")
        if program is None:
            raise CannotBeHad("redis-server is not installed (Debian: apt install redis-server)")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = tempfile.mkdtemp(prefix="oncely-redis-")
        settings = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        self._server = subprocess.Popen(
            [program, "--port", str(self.port), "--bind", "127.0.0.1", *settings],
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while True:
            try:
                self._ask("PING")
            except OSError as error:
                if time.monotonic() > deadline or self._server.poll() is not None:
                    self.__exit__()
                    raise CannotBeHad(f"redis-server does not start: {error}") from error
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._server.terminate()
        self._server.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def empty(self) -> None:
        self._ask("FLUSHALL")

    def version(self) -> str:
        for line in self._ask("INFO server").splitlines():
            if line.startswith("redis_version:"):
                return line.partition(":")[2]
        return "unknown"

    def _ask(self, command: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(65_536).decode(errors="replace")
