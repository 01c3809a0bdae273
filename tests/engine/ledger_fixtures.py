"""The servers and places of the ledger's tests: a plugin of the modules that name it in
`pytest_plugins`."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from tests.cluster import Cluster, free_port
from tests.engine.ledger_places import PLACES, Place, serve
from tests.services import MARIADB, REDIS, programs


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    [redis] = programs(REDIS)
    port = free_port()
    folder = tempfile.mkdtemp(prefix="oncely-redis-")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", folder]
    for _ in serve([redis, *options], port, folder):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def mysql_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new MariaDB data folder, made once in a run: it takes longer than most tests."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    template = shared / "mysql-template"
    _, install, _ = programs(MARIADB)
    with (shared / "mysql-template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            half_done = shared / "mysql-half-done"
            options = ["--no-defaults", "--auth-root-authentication-method=normal"]
            subprocess.run(
                [install, *options, *_as_root(), "--skip-test-db", f"--datadir={half_done}"],
                check=True,
                capture_output=True,
            )
            half_done.rename(template)
    return template


@pytest.fixture(scope="session")
def mysql_url(mysql_template: Path) -> Iterator[str]:
    server, *_ = programs(MARIADB)
    folder = tempfile.mkdtemp(prefix="oncely-mysql-")
    shutil.copytree(mysql_template, folder, dirs_exist_ok=True)
    port = free_port()
    options = [
        "--no-defaults",
        f"--datadir={folder}",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={folder}/socket",
        *_as_root(),
    ]
    for _ in serve([server, *options], port, folder):
        yield f"mysql+pymysql://root@127.0.0.1:{port}/"


def _as_root() -> list[str]:
    """MariaDB does not run as root unless told to."""
    return ["--user=root"] if os.geteuid() == 0 else []


@pytest.fixture
def mysql_database(mysql_url: str) -> str:
    return _create_mysql_database(mysql_url)


@pytest.fixture(scope="session")
def ledger_mysql(mysql_url: str) -> str:
    """One database for all tests of the ledger, which keep out of each other's way by their
    keys."""
    return _create_mysql_database(mysql_url)


@pytest.fixture(scope="session")
def ledger_postgres(cluster: Cluster) -> Iterator[str]:
    """The same on PostgreSQL."""
    name = f"ledger_{uuid4().hex}"
    yield cluster.create_database(name)
    cluster.drop_later(name)


def _create_mysql_database(server: str) -> str:
    name = f"test_{uuid4().hex}"
    engine = create_engine(server)
    with engine.begin() as connection:
        connection.execute(text(f"create database {name} character set utf8mb4"))
    engine.dispose()
    return server + name


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    name: str = request.param
    url: str = request.getfixturevalue(PLACES[name][0])
    with ExitStack() as closing:
        yield Place(name, url, closing)
