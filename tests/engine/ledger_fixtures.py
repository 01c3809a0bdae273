"""The servers and places of the ledger's tests: a plugin of the modules that name it in
`pytest_plugins`. Where a server's program is not installed its tests are skipped, and say so."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from tests.engine.ledger_places import PLACES, Place, free_port, program, serve


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    redis = program("redis-server")
    port = free_port()
    folder = tempfile.mkdtemp(prefix="oncely-redis-")
    options = ["--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", folder]
    for _ in serve([redis, *options], port, folder):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="session")
def mysql_url() -> Iterator[str]:
    server = program("mariadbd", "mysqld")
    install = program("mariadb-install-db", "mysql_install_db")
    folder = tempfile.mkdtemp(prefix="oncely-mysql-")
    subprocess.run(
        [install, f"--datadir={folder}", "--auth-root-authentication-method=normal", "--user=root"],
        check=True,
        capture_output=True,
    )
    port = free_port()
    options = [
        "--no-defaults",
        f"--datadir={folder}",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={folder}/socket",
        "--user=root",
    ]
    for _ in serve([server, *options], port, folder):
        yield f"mysql+pymysql://root@127.0.0.1:{port}/"


@pytest.fixture
def mysql_database(mysql_url: str) -> str:
    pytest.importorskip("pymysql")
    name = f"test_{uuid4().hex}"
    engine = create_engine(mysql_url)
    with engine.begin() as connection:
        connection.execute(text(f"create database {name} character set utf8mb4"))
    engine.dispose()
    return mysql_url + name


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    name: str = request.param
    if name == "redis":
        pytest.importorskip("redis")
    url: str = request.getfixturevalue(PLACES[name][0])
    with ExitStack() as closing:
        yield Place(name, url, closing)
