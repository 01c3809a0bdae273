"""Names that are random in each run are matched by what else is there, and counted."""

import random
import secrets
import sqlite3
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oncely import Oncely, Retry
from oncely.prove import Report, Table, prove
from oncely.prove.stand_ins import StandIns
from tests.waiting import PATIENCE_SECONDS


class Shop:
    def __init__(self, folder: Path) -> None:
        self._numbers = count()
        self.folder = folder / "receipts"
        self.folder.mkdir()
        (self.folder / "old-1a2b3c4d.txt").write_text("old")
        self.path = folder / "shop.db"
        self.app = Oncely(f"sqlite:///{folder / 'jobs.db'}")
        self.run("create table orders (id text primary key, name text)")
        self.run("create table items (order_id text, text text)")
        self.tables = [Table(f"sqlite:///{self.path}", name) for name in ("orders", "items")]

    def run(self, sql: str, *values: Any) -> list[Any]:
        with closing(
            sqlite3.connect(self.path, timeout=PATIENCE_SECONDS, isolation_level=None)
        ) as db:
            return db.execute(sql, values).fetchall()

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.iterdir()}

    def prove(self, handler: Callable[[], None], schedule: str) -> Report:
        kind = f"handler.{next(self._numbers)}"
        self.app.job(kind, retry=Retry(base=0, max_attempts=5))(lambda ctx: handler())
        return prove(self.app, kind, world=[*self.tables, self.files], schedule=schedule)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.app.close()


@pytest.mark.parametrize("holds", [True, False])
def test_a_row_with_a_random_id(shop: Shop, holds: bool) -> None:
    def order() -> None:
        if holds and shop.run("select 1 from orders"):
            return
        shop.run("insert into orders values (?, 'book')", str(uuid.uuid4()))

    report = shop.prove(order, "crash@3" if holds else "crash@2")
    assert [each.verdict for each in report.violations] == ([] if holds else ["doubled"])
    assert report.random_names == ["table orders"]
    assert report.wanted["table orders"] == {'{"id":"(random)","name":"book"}': 1}
    assert "random names differ in each run" in str(report)


@pytest.mark.parametrize("holds", [True, False])
def test_a_file_with_a_random_name(shop: Shop, holds: bool) -> None:
    def write() -> None:
        shop.run("insert or ignore into orders values ('a', 'book')")
        if holds and len(shop.files()) > 1:
            return
        with tempfile.NamedTemporaryFile(
            "w", dir=shop.folder, prefix="receipt_", suffix=".txt", delete=False
        ) as file:
            file.write("paid")

    report = shop.prove(write, "crash@100")
    last = len(report.boundaries) - 1
    report = shop.prove(write, f"crash@{last}")
    assert [each.verdict for each in report.violations] == ([] if holds else ["doubled"]), str(
        report
    )
    assert report.wanted["files 2"] == {"old-1a2b3c4d.txt: old": 1, "(random).txt: paid": 1}


def test_a_row_that_refers_to_a_random_id_of_nobody(shop: Shop) -> None:
    """The second delivery takes an id of its own, and finds that the order is there."""

    def order() -> None:
        name = uuid.uuid4().hex
        if not shop.run("select 1 from orders"):
            shop.run("insert into orders values (?, 'book')", name)
        if not shop.run("select 1 from items"):
            shop.run("insert into items values (?, 'page')", name)

    assert shop.prove(order, "crash@1").violations == []
    report = shop.prove(order, "crash@3")
    assert [each.verdict for each in report.violations] == ["diverged"]
    assert report.violations[0].differences[0].label == "references"


def test_what_is_no_name_is_not_taken_for_one() -> None:
    def are_matched(one: str, other: str) -> bool:
        names = StandIns()
        names.learn({}, {"w": Counter([one])}, {"w": Counter([other])})
        return bool(names.random)

    assert are_matched(f"a {uuid.uuid4()}", f"a {uuid.uuid4()}")
    assert are_matched(f"a-{secrets.token_hex(8)}x1", f"a-{secrets.token_hex(8)}x1")
    assert not are_matched("variant-alpha", "variant-gamma")
    assert not are_matched("2026-11-18T05:01:02.123456", "2026-11-18T05:01:03.654321")
    assert not are_matched("20261118T050102Z", "20261118T050103Z")
    assert not are_matched(str(random.getrandbits(60)), str(random.getrandbits(59)))
    assert not are_matched(f"a {uuid.uuid4()}", f"b {uuid.uuid4()}")
