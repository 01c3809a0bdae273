import gc
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import hypothesis
import pytest

from oncely import Oncely
from tests import services
from tests.cluster import Cluster
from tests.crash.load import TORTURE
from tests.order import longest_first
from tests.scratch import use_memory
from tests.seed import VARIABLE, seed
from tests.spares import Spares

use_memory()
seed()  # before any process is started that must inherit it

# A shell that starts a command in the background lets it ignore Ctrl-C, `nohup` lets it ignore the
# end of the terminal, and every child inherits that. What is caught here is not ignored there.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _ignored in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(_ignored, signal.SIG_DFL)


# Nothing of the caller's: a store, a key, or a proxy that would be asked for this very machine.
for _name in ("ONCELY_URL", "ONCELY_API_KEY", "ONCELY_PUSH_ALLOW", "ONCELY_REDACT"):
    os.environ.pop(_name, None)
# Some images set it: then this process, and every one that a test starts, compiles everything anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"

# What an example takes depends on what else the machine does.
hypothesis.settings.register_profile(
    "oncely",
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("oncely")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = seed()


def pytest_report_header() -> str:
    return f"random choices: {VARIABLE}={seed()}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails says how to run it alone, with the same random choices."""
    report = yield
    if report.failed:
        torture = f"ONCELY_TORTURE={TORTURE} " if TORTURE > 1 else ""
        command = f"{torture}{VARIABLE}={seed()} .venv/bin/pytest {shlex.quote(item.nodeid)}"
        report.sections.append(("to run it alone", command))
    return report


def pytest_collection_finish() -> None:
    """The modules and the tests stay until the end: the collector need not go through them again
    and again, and forks need not copy them for that."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left_out = services.left_out()
    if left_out is not None:
        terminalreporter.write_line(left_out, yellow=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes very long is left to `make torture`."""
    if TORTURE == 1:
        left = [item for item in items if item.get_closest_marker("torture")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    longest_first(items)


MIGRATING = {"app", "at", "migrated"}
"""Fixtures that migrate a store in any case: theirs has the tables in it from the beginning."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The PostgreSQL of this run (of this worker, under pytest-xdist). Started when asked for."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spares(cluster: Cluster) -> Iterator[Spares]:
    with closing(Spares(cluster)) as spares:
        yield spares


@pytest.fixture
def postgres_url(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a database of this test's own: empty, or where it is migrated in any case,
    with the tables in it."""
    if MIGRATING & set(request.fixturenames):
        spares: Spares = request.getfixturevalue("spares")
        name = spares.take()
        yield cluster.url(name)
        spares.give_back(name)
    else:
        name = f"test_{uuid4().hex}"
        yield cluster.create_database(name)
        cluster.drop_later(name)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    with Oncely(f"sqlite:///{path}") as app:
        app.migrate()
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The same on SQLite: no file yet, or one with the tables in it."""
    path = tmp_path / "jobs.db"
    if MIGRATING & set(request.fixturenames):
        template: Path = request.getfixturevalue("sqlite_template")
        shutil.copyfile(template, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty store on each engine in turn: what runs with this runs on both."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture
def migrated() -> None:
    """For tests that make the store's app themselves, and migrate it first."""


@pytest.fixture
def app(url: str, request: pytest.FixtureRequest) -> Iterator[Oncely]:
    with Oncely(url) as app:
        if url.startswith("sqlite"):
            yield app
            return
        spares: Spares = request.getfixturevalue("spares")
        with spares.sessions_for(app):
            yield app


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
