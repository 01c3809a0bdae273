"""One repeat in a fresh interpreter: what differs from process to process differs there."""

import importlib
import math
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from oncely import Oncely, Retry
from oncely.prove import Report, Table, prove

AT_ONCE = Retry(base=0, max_attempts=5)
ONCE = "insert into notes select ?, 'paid' where not exists (select 1 from notes where mark = ?)"
HEAD = f"""
import os, sqlite3, uuid
from contextlib import closing
RUN = str(uuid.uuid4())

def write(mark):
    with closing(sqlite3.connect(os.environ["SHOP"], isolation_level=None)) as db:
        db.execute({ONCE!r}, (mark, mark))
"""
HANDLERS = {
    "by_hash": "write(str(hash(payload)))",
    "by_module": "write(RUN)",
    "by_order": "write(' '.join({payload + str(n) for n in range(100)}))",
    "by_payload": "write(payload)",
}
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Makes a module of the given source, and imports it."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table notes (mark text, text text)")
    monkeypatch.setenv("SHOP", str(path))
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def load(source: str) -> ModuleType:
        name = f"shop_{tmp_path.name}_{len(names)}".replace("-", "_")
        names.append(name)
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield load
    for name in names:
        del sys.modules[name]


def shown(function: Any, tmp_path: Path, schedule: str | None, *ignore: str) -> Report:
    world = [Table(f"sqlite:///{tmp_path / 'shop.db'}", "notes", ignore=ignore)]
    return prove(
        function, payload="ann", world=world, schedule=schedule, max_faults=1,
        budget_seconds=math.inf,
    )  # fmt: skip


@pytest.mark.parametrize("name", HANDLERS)
def test_a_mark_that_another_process_makes_otherwise(load: Load, tmp_path: Path, name: str) -> None:
    module = load(f"{HEAD}\ndef handler(payload):\n    {HANDLERS[name]}\n")
    assert shown(module.handler, tmp_path, "crash@2").verdict == "sound"
    report = shown(module.handler, tmp_path, "fresh@2")
    if name == "by_payload":
        assert report.verdict == "sound", str(report)
    else:
        assert [each.verdict for each in report.violations] == ["doubled"], str(report)
        assert "a fresh interpreter goes on" in str(report)
        assert "ctx.job_id" in report.violations[0].advice
    assert report.not_tried == []


def test_it_is_played_once_in_a_proof(load: Load, tmp_path: Path) -> None:
    module = load(f"{HEAD}\ndef handler(payload):\n    write(payload)\n")
    report = shown(module.handler, tmp_path, None)
    assert report.verdict == "sound", str(report)
    assert [str(each) for each in report.played if "fresh" in str(each)] == ["fresh@2"]


def test_a_value_of_the_process_that_is_only_written_is_no_repeat(
    load: Load, tmp_path: Path
) -> None:
    module = load(
        f"{HEAD}\ndef handler(payload):\n"
        "    with closing(sqlite3.connect(os.environ['SHOP'], isolation_level=None)) as db:\n"
        "        db.execute('delete from notes')\n"
        "        db.execute('insert into notes values (?, ?)', (RUN, payload))\n"
    )
    report = shown(module.handler, tmp_path, "fresh@3")
    assert report.violations == [], str(report)
    assert "not tried: a fresh interpreter: the handler writes other values there" in str(report)
    report = shown(module.handler, tmp_path, "fresh@3", "mark")
    assert (report.verdict, report.not_tried) == ("sound", []), str(report)


def test_a_handler_that_needs_what_this_process_has_set_up_is_not_tried(
    load: Load, tmp_path: Path
) -> None:
    module = load(
        f"{HEAD}\nIS_READY = False\ndef handler(payload):\n"
        "    if IS_READY:\n        write(payload)\n"
    )
    module.IS_READY = True  # type: ignore[attr-defined]
    report = shown(module.handler, tmp_path, "fresh@1")
    assert report.violations == [], str(report)
    assert "not tried: a fresh interpreter: the handler does not do its work there" in str(report)
    assert report.as_dict()["not_tried"] == report.not_tried


def test_a_module_that_makes_its_own_world_is_not_tried(load: Load, tmp_path: Path) -> None:
    module = load(
        f"{HEAD}\nfrom oncely.prove import Downstream\nservice = Downstream()\n"
        "def handler(payload):\n    write(payload)\n"
    )
    try:
        report = shown(module.handler, tmp_path, "fresh@2")
    finally:
        module.service.close()
    assert report.violations == []
    assert "makes a Downstream when it is imported" in str(report)


def test_a_handler_that_cannot_be_imported_is_not_tried(tmp_path: Path, load: Load) -> None:
    del load

    def inside(payload: str) -> None:
        with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as db:
            db.execute(ONCE, (payload, payload))

    report = shown(inside, tmp_path, "fresh@2")
    assert report.schedules == 0
    assert "not tried: a fresh interpreter: the handler cannot be imported" in str(report)


def test_on_postgres(load: Load, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP", postgres_url)
    with psycopg.connect(postgres_url) as server:
        server.execute("create table notes (mark text primary key)")
    module = load(
        "import os, psycopg\nfrom oncely import Context\n"
        "def handler(ctx: Context, payload: str) -> None:\n"
        "    mark = payload if payload == 'ann' else str(hash(payload))\n"
        "    with psycopg.connect(os.environ['SHOP']) as db:\n"
        "        db.execute('insert into notes values (%s) on conflict do nothing', (mark,))\n"
    )
    with Oncely(postgres_url) as app:
        app.migrate()
        app.job("handler", retry=AT_ONCE)(module.handler)
        world = [Table(postgres_url, "notes")]
        sound = prove(app, "handler", "ann", world=world, schedule="fresh@4")
        broken = prove(app, "handler", "bob", world=world, schedule="fresh@4")
    assert (sound.verdict, sound.not_tried) == ("sound", []), str(sound)
    assert [each.verdict for each in broken.violations] == ["doubled"], str(broken)
