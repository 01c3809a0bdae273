"""Handlers that hold are cleared: with the verbs of the effect layer, and without them."""

import json
import math
import os
import sqlite3
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from oncely import Context, Ledger, Oncely, Retry
from oncely.model.errors import InvalidInput
from oncely.prove import Downstream, Report, Table, prove
from oncely.prove.world import WorldItem
from tests.cluster import Cluster
from tests.waiting import PATIENCE_SECONDS, wait_until

AT_ONCE = Retry(base=0, max_attempts=5)
A_DAY = 86_400


def post(url: str, body: str, key: str | None = None) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)


def find(url: str, body: str) -> bool:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
        return any(each["body"] == body for each in json.load(answer)["done"])


class Shop:
    """An app with handlers that hold, and some that do not."""

    def __init__(self, url: str) -> None:
        self.app = Oncely(url)
        self.app.migrate()
        self.on_postgres = url.startswith("postgres")
        self.url = url
        with self.connection() as db:
            db.execute("create table payments (account text)")
        self.ledger = Ledger(url)
        if self.on_postgres:
            self.ledger.migrate()
        self.bank = Downstream(keys="forgotten")
        self.mail = Downstream()
        self._insert = f"insert into payments values ({'%s' if self.on_postgres else '?'})"
        for name in ("transaction", "atransaction", "step", "astep", "verified", "held"):
            self.app.job(name, retry=AT_ONCE)(getattr(self, name))
        for name in ("in_own_transaction", "with_child", "unkeyed", "two_children"):
            self.app.job(name, retry=AT_ONCE)(getattr(self, name))

    def close(self) -> None:
        for each in (self.app, self.ledger, self.bank, self.mail):
            each.close()

    def connection(self) -> Any:
        if self.on_postgres:
            return psycopg.connect(self.url)
        return _Committing(
            sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=PATIENCE_SECONDS)
        )

    def prove(self, kind: str) -> Report:
        world: list[WorldItem] = [Table(self.url, "payments"), self.bank, self.mail]
        return prove(self.app, kind, "ann", world=world, max_faults=1, budget_seconds=math.inf)

    def transaction(self, ctx: Context, who: str) -> None:
        with ctx.transaction() as tx:
            tx.execute(self._insert, (who,))

    async def atransaction(self, ctx: Context, who: str) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(self._insert, (who,))

    def step(self, ctx: Context, who: str) -> Any:
        return ctx.step("charge", post, self.bank.url, who, ctx.key("charge"), key_ttl=A_DAY)

    async def astep(self, ctx: Context, who: str) -> Any:
        return await ctx.step("charge", post, self.bank.url, who, ctx.key("charge"), key_ttl=A_DAY)

    def verified(self, ctx: Context, who: str) -> Any:
        return ctx.fence("mail", post, self.mail.url, who, verify=find)

    def held(self, ctx: Context, who: str) -> Any:
        return ctx.fence("mail", post, self.mail.url, who)

    def in_own_transaction(self, ctx: Context, who: str) -> None:
        with self.connection() as db, self.ledger.transaction(f"pay:{ctx.job_id}", tx=db) as entry:
            if entry.fresh:
                db.execute(self._insert, (who,))

    def with_child(self, ctx: Context, who: str) -> None:
        with ctx.transaction() as tx:
            ctx.enqueue("unkeyed", who, tx=tx)

    def unkeyed(self, ctx: Context, who: str) -> Any:
        return ctx.step("charge", post, self.mail.url, who)

    def two_children(self, ctx: Context, who: str) -> None:
        self.app.enqueue("unkeyed", who)
        self.app.enqueue("unkeyed", who)


class _Committing:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> sqlite3.Connection:
        return self._db

    def __exit__(self, kind: object, *_: object) -> None:
        with closing(self._db):
            if kind is None:
                self._db.commit()


@pytest.fixture
def shop(sqlite_url: str) -> Iterator[Shop]:
    shop = Shop(sqlite_url)
    yield shop
    shop.close()


SOUND = ("transaction", "atransaction", "in_own_transaction", "with_child")
DECLARED = ("step", "astep", "verified", "held")


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_handler_is_cleared(shop: Shop, kind: str) -> None:
    report = shop.prove(kind)
    assert (report.verdict, report.violations) == ("sound", []), str(report)
    assert report.schedules > len(report.boundaries) - report.alike
    assert report.ok


@pytest.mark.parametrize("kind", DECLARED)
def test_what_is_in_doubt_as_declared_is_sound(shop: Shop, kind: str) -> None:
    report = shop.prove(kind)
    assert (report.verdict, report.violations) == ("held", []), str(report)
    assert report.ok
    assert (report.held > 0) is (kind != "verified")
    risks = report.as_dict()["declared_risks"]
    assert {each["effect"] for each in risks} == ({"fence 'mail'"} if kind == "verified" else set())
    assert ("fence 'mail' was done twice" in report.sentence) is (kind == "verified")


def test_a_doubt_does_not_hide_what_is_beside_it(shop: Shop) -> None:
    """The job is held, and when it goes on, the call before the fence is made once more."""

    @shop.app.job("beside", retry=AT_ONCE)
    def beside(ctx: Context, who: str) -> None:
        post(shop.bank.url, who)
        ctx.fence("mail", post, shop.mail.url, who)

    learned = prove(shop.app, "beside", "ann", world=[shop.bank, shop.mail], schedule="crash@0")
    [_, mail] = [each.number for each in learned.boundaries if each.channel == "http"]
    inside = f"crash@{mail}"
    report = prove(shop.app, "beside", "ann", world=[shop.bank, shop.mail], schedule=inside)
    assert [each.verdict for each in report.violations] == ["doubled"]
    assert report.held == 0


def test_a_step_without_a_key_is_repeated(shop: Shop) -> None:
    report = shop.prove("unkeyed")
    assert report.verdict == "doubled"
    assert "key_ttl" in report.violations[0].advice


def test_children_count(shop: Shop) -> None:
    report = shop.prove("two_children")
    assert {each.verdict for each in report.violations} == {"doubled"}
    assert "jobs enqueued" in str(report)


@pytest.mark.parametrize("kind", ["transaction", "in_own_transaction"])
def test_on_postgres(postgres_url: str, kind: str) -> None:
    shop = Shop(postgres_url)
    try:
        report = shop.prove(kind)
        assert report.violations == [], str(report)
        assert report.ok
        assert shop.app.jobs() == []
    finally:
        shop.close()


def test_a_crash_between_two_transactions_is_found_on_postgres(postgres_url: str) -> None:
    shop = Shop(postgres_url)

    @shop.app.job("two", retry=AT_ONCE)
    async def two(ctx: Context, who: str) -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as db:
            await db.execute("insert into payments values (%s)", (who,))

    try:
        report = shop.prove("two")
        assert report.verdict == "doubled", str(report)
        assert "test_sound.py:" in report.violations[0].timeline()
        with psycopg.connect(postgres_url) as db:
            assert db.execute("select * from payments").fetchall() == []
            names = db.execute("select datname from pg_database").fetchall()
        assert [name for (name,) in names if name.startswith("oncely_prove")] == []
    finally:
        shop.close()


def test_other_libraries_and_what_is_refused_on_postgres(
    cluster: Cluster, postgres_url: str
) -> None:
    shop = Shop(postgres_url)
    open_before = psycopg.connect(cluster.url())

    @shop.app.job("asyncpg", retry=AT_ONCE)
    async def by_asyncpg(ctx: Context, who: str) -> None:
        db = await asyncpg.connect(postgres_url)
        async with db.transaction():
            await db.execute("insert into payments values ($1)", who)
        await db.close()

    @shop.app.job("inherited")
    def inherited(ctx: Context) -> None:
        open_before.execute("select 1")

    @shop.app.job("elsewhere")
    def elsewhere(ctx: Context) -> None:
        psycopg.connect(cluster.url()).close()

    try:
        report = shop.prove("asyncpg")
        assert [each.name for each in report.boundaries][1:4:2] == ["BEGIN", "COMMIT"]
        assert report.verdict == "doubled"
        assert report.unobserved == []
        with pytest.raises(InvalidInput, match="opened before the handler ran"):
            shop.prove("inherited")
        with pytest.raises(InvalidInput, match="a PostgreSQL database that is not under proof"):
            shop.prove("elsewhere")
    finally:
        open_before.close()
        shop.close()


def test_waiting_for_other_writers_is_not_seen_as_a_file_of_the_handler(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Oncely(f"sqlite:///{path}") as app:
        app.migrate()
        with closing(sqlite3.connect(path)) as db:
            db.execute("create table payments (account text)")

        def is_queued() -> bool:
            return any(
                os.path.realpath(f"/proc/self/fd/{number}").endswith("-queue")
                for number in os.listdir("/proc/self/fd")
            )

        @app.job("pay", retry=AT_ONCE)
        def pay(ctx: Context, account: str) -> None:
            def release() -> None:
                wait_until(is_queued, "nobody waits in the queue of the writers")
                other.execute("rollback")

            with closing(
                sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            ) as other:
                other.execute("begin immediate")
                threading.Thread(target=release).start()
                with ctx.transaction() as tx:
                    tx.execute("insert into payments values (?)", (account,))

        report = prove(app, "pay", "ann", world=[Table(app.url, "payments")], schedule="crash@1")
        assert report.verdict == "sound", str(report)
    assert [file.name for file in tmp_path.iterdir()] == ["jobs.db"]


class Sent(list[str]):
    """What a service was sent, kept by its `answer` in the process that proves."""

    def snapshot(self) -> list[str]:
        return list(self)

    def reset(self) -> None:
        self.clear()


@pytest.mark.parametrize("looks_at", ["done", "sent"])
def test_a_delivery_finds_in_memory_what_was_done_before_it(sqlite_url: str, looks_at: str) -> None:
    sent = Sent()
    answer = None if looks_at == "done" else lambda request: sent.append(request.body)
    with Oncely(sqlite_url) as app, Downstream(answer=answer) as mail:

        @app.job("send", retry=AT_ONCE)
        def send(ctx: Context) -> None:
            if not (mail.done if looks_at == "done" else sent):
                post(mail.url, "ann")

        world: list[WorldItem] = [mail] if looks_at == "done" else [mail, sent]
        report = prove(app, "send", world=world, schedule="crash@2")
    assert [each.name for each in report.boundaries][0::2] == ["claim", "settle"]
    assert report.verdict == "sound", str(report)
