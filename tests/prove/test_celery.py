"""A task of Celery is proved with the request that a worker of Celery gives it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from oncely.model.errors import InvalidInput
from oncely.prove import Report, Table, prove
from tests.waiting import PATIENCE_SECONDS


class Shop:
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "shop.db")
        self.celery = Celery("shop", broker="memory://")
        self.run("create table charges (id text, retries integer)")

    def run(self, sql: str, *values: Any) -> list[Any]:
        with closing(
            sqlite3.connect(self.path, timeout=PATIENCE_SECONDS, isolation_level=None)
        ) as db:
            return db.execute(sql, values).fetchall()

    def task(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        task: Callable[[Callable[..., Any]], Any] = self.celery.task(bind=True, **options)
        return task

    def prove(self, task: Any, **options: Any) -> Report:
        table = Table(f"sqlite:///{self.path}", "charges")
        return prove(task, payload="ann", world=[table], **options)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def rows(report: Report) -> list[str]:
    return list(report.wanted["table charges"])


def test_the_id_is_the_same_in_each_redelivery(shop: Shop) -> None:
    @shop.task()
    def charge(self: Any, who: str) -> None:
        key = self.request.id
        if not shop.run("select 1 from charges where id = ?", key):
            shop.run("insert into charges values (?, ?)", key, self.request.retries)

    report = shop.prove(charge, schedule="crash@3")
    assert report.ok, str(report)
    assert report.boundaries[3].name == "settle"
    assert '"id":null' not in rows(report)[0]


def test_a_task_that_writes_each_time_is_doubled(shop: Shop) -> None:
    @shop.task()
    def charge(self: Any, who: str) -> None:
        shop.run("insert into charges values (?, 0)", self.request.id)

    report = shop.prove(charge, schedule="crash@2")
    assert report.violations[0].verdict == "doubled"
    [line] = report.violations[0].differences[0].extra
    assert line in rows(report)


@pytest.mark.parametrize("form", ["retry", "autoretry"])
def test_retries_are_counted_and_redeliveries_are_not(shop: Shop, form: str) -> None:
    options = {"autoretry_for": (LookupError,), "default_retry_delay": 1}
    shop.run("create table seen (retries integer, redelivered integer)")

    @shop.task(max_retries=2, **(options if form == "autoretry" else {}))
    def charge(self: Any, who: str) -> None:
        request = self.request
        shop.run(
            "insert into seen values (?, ?)", request.retries, request.delivery_info["redelivered"]
        )
        if request.retries < 2 and form == "retry":
            raise self.retry(countdown=3600)
        if request.retries < 2:
            raise LookupError("not yet")
        shop.run("insert or replace into charges values (?, ?)", request.id, request.retries)

    def seen() -> list[Any]:
        return shop.run("select * from seen")

    table = Table(f"sqlite:///{shop.path}", "charges")
    report = prove(charge, payload="ann", world=[table, seen], schedule="crash@3")
    assert report.wanted["seen 1"] == {"[0,0]": 1, "[1,0]": 1, "[2,0]": 1}
    [violation] = report.violations
    [difference] = violation.differences
    assert (difference.missing, difference.extra) == (
        ["[1,0]", "[2,0]"],
        ["[0,1]", "[1,1]", "[2,1]"],
    )


def test_retries_come_to_an_end(shop: Shop) -> None:
    @shop.task(max_retries=1)
    def charge(self: Any, who: str) -> None:
        raise self.retry(exc=LookupError("no such order"))

    with pytest.raises(InvalidInput, match="no such order"):
        shop.prove(charge)


def test_a_retry_with_other_arguments_is_refused(shop: Shop) -> None:
    @shop.task()
    def charge(self: Any, who: str) -> None:
        raise self.retry(args=["bob"], countdown=0)

    with pytest.raises(InvalidInput, match="retried with other arguments"):
        shop.prove(charge)
