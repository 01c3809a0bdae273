"""The stores of the tests of `tx=`: a plugin of the modules that name it in `pytest_plugins`."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from oncely import Oncely
from tests.cluster import Cluster
from tests.engine.tx_scene import KITS, Scene


@pytest.fixture(scope="session")
def tx_postgres(cluster: Cluster) -> Iterator[str]:
    """One database for all tests of `tx=`, which keep out of each other's way by their keys."""
    name = f"tx_{uuid4().hex}"
    url = cluster.create_database(name)
    with Oncely(url) as app:
        app.migrate()
    with psycopg.connect(url) as connection:
        connection.execute("create table orders (name text primary key)")
    yield url
    cluster.drop_later(name)


@pytest.fixture(scope="session")
def tx_empty(cluster: Cluster) -> Iterator[str]:
    """A database in which there is nothing, not even our tables."""
    name = f"empty_{uuid4().hex}"
    yield cluster.create_database(name)
    cluster.drop_later(name)


@pytest.fixture(scope="session")
def tx_other_store(cluster: Cluster) -> Iterator[str]:
    """A database with a store of its own in a schema of the same name."""
    name = f"other_{uuid4().hex}"
    url = cluster.create_database(name)
    with Oncely(url) as app:
        app.migrate()
    with psycopg.connect(url) as connection:
        connection.execute("create table orders (name text primary key)")
    yield url
    cluster.drop_later(name)


@pytest.fixture(scope="session")
def tx_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tx") / "jobs.db"
    with Oncely(f"sqlite:///{path}") as app:
        app.migrate()
    connection = sqlite3.connect(path)
    connection.execute("create table orders (name text primary key)")
    connection.close()
    return path


@pytest.fixture
def tx_sqlite(tx_template: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(tx_template, tmp_path)}"


@pytest.fixture(scope="session")
def tx_others(tx_postgres: str) -> Iterator[tuple[Oncely, psycopg.Connection]]:
    """Connections that stay: making them costs more than most tests do."""
    with Oncely(tx_postgres) as app, psycopg.connect(tx_postgres, autocommit=True) as watcher:
        yield app, watcher


@pytest.fixture
def scene(library: str, request: pytest.FixtureRequest) -> Iterator[Scene]:
    engine = library.partition("-")[0]
    url: str = request.getfixturevalue(f"tx_{engine}")
    with ExitStack() as closing:
        if engine == "postgres":
            app, watcher = request.getfixturevalue("tx_others")
        else:
            app = closing.enter_context(Oncely(url))
            app.migrate()
            watcher = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            closing.callback(watcher.close)
        yield Scene(url, app, KITS[library], watcher, closing)
