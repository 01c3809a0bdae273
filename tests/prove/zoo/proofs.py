"""One entry of the zoo is proved: in a folder of its own, on servers that are there for all."""

import math
import os
import shutil
import sqlite3
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, chdir, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import redis

from oncely import Oncely, Retry
from oncely.model.errors import InvalidInput
from oncely.prove import Downstream, Mailbox, Report, Table, prove
from tests import services
from tests.cluster import Cluster, free_port
from tests.engine.ledger_places import serve
from tests.prove.zoo.entries import BROKEN, Entry


class Proof(msgspec.Struct):
    entry: Entry
    verdicts: list[str]
    """The verdict of the report first, then those of its violations."""
    text: str

    @property
    def is_right(self) -> bool:
        """A violation that was foreseen may come after another one."""
        if self.entry.expected in BROKEN:
            return self.entry.expected in self.verdicts
        return self.verdicts[0] == self.entry.expected


@contextmanager
def servers(entries: list[Entry]) -> Iterator[None]:
    """PostgreSQL and Redis, if one of the entries needs them: their addresses are in the
    environment, where the handlers look."""
    with ExitStack() as stack:
        if any(entry.postgres for entry in entries):
            cluster = stack.enter_context(Cluster())
            os.environ["SHOP_DATABASE"] = cluster.create_database("shop")
        if any(entry.redis for entry in entries):
            stack.enter_context(_redis())
        yield


@contextmanager
def _redis() -> Iterator[None]:
    [program] = services.REDIS.find() or ["redis-server"]
    port, folder = free_port(), tempfile.mkdtemp()
    os.environ["SHOP_REDIS"] = f"redis://127.0.0.1:{port}/0"
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
    yield from serve([program, *options], port, folder)


@contextmanager
def working_directory() -> Iterator[None]:
    """The same for all entries, for modules that keep its path when they are imported."""
    with tempfile.TemporaryDirectory(prefix="oncely-zoo-") as folder, chdir(folder):
        yield


def prove_entry(entry: Entry) -> Proof:
    """In the working directory, which is empty before it and after it."""
    if os.listdir():
        raise RuntimeError(f"{os.getcwd()} is not empty; expected an empty working directory")
    try:
        with ExitStack() as stack:
            report = _prove(entry, stack)
    except InvalidInput as error:
        return Proof(entry, ["refused"], str(error))
    except Exception:
        return Proof(entry, ["an error of the prover"], traceback.format_exc())
    finally:
        for path in Path.cwd().iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    found = [report.verdict, *(each.verdict for each in report.violations)]
    return Proof(entry, list(dict.fromkeys(found)), str(report))


def _prove(entry: Entry, stack: ExitStack) -> Report:
    world = _world(entry, stack)
    _fill(entry)
    options: dict[str, Any] = {
        "world": world,
        "max_faults": entry.max_faults,
        "budget_seconds": math.inf,
        **entry.options,
    }
    if entry.job:
        url = os.environ["SHOP_DATABASE"] if entry.postgres else "sqlite:///jobs.db"
        app = stack.enter_context(Oncely(url))
        app.migrate()
        app.job("handler", retry=Retry(base=0))(entry.target)
        return prove(app, "handler", *entry.args, **options)
    return prove(entry.target, entry.request, args=entry.args, **options)


def _world(entry: Entry, stack: ExitStack) -> list[Any]:
    world: list[Any] = [Table(os.environ["SHOP_DATABASE"], name) for name in entry.tables]
    for name, service in (("SHOP_SERVICE", entry.service), ("SHOP_BACKUP", entry.backup)):
        if service is not None:
            world.append(stack.enter_context(Downstream(**service)))
            os.environ[name] = world[-1].url
    if entry.mail:
        world.append(stack.enter_context(Mailbox()))
        os.environ["SHOP_SMTP"] = world[-1].address
    return [*world, *entry.compare]


def _fill(entry: Entry) -> None:
    if entry.schema:
        with closing(sqlite3.connect("shop.db")) as db:
            db.executescript(entry.schema)
    if entry.postgres:
        with psycopg.connect(os.environ["SHOP_DATABASE"]) as server:
            server.execute("drop schema if exists oncely cascade")
            server.execute("drop schema public cascade")
            server.execute("create schema public")
            server.execute(entry.postgres.encode())
    if entry.redis:
        with redis.Redis.from_url(os.environ["SHOP_REDIS"]) as cache:
            cache.flushall()
    if entry.prepare is not None:
        entry.prepare()
