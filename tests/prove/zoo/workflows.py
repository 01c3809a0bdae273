"""Handlers of several parts: sagas, batches, state machines, leases, and what they leave behind."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import requests

from tests.prove.zoo.entries import expect
from tests.prove.zoo.sqlite import PAYMENTS, connect

KEYS: dict[str, Any] = {"service": {"keys": "honoured"}}
SAGA = """
create table sagas (order_id text primary key, state text);
insert into sagas values ('order-1', 'new');
"""
LEASES = """
create table leases (order_id text primary key, owner text, until text);
create table charges (order_id text);
"""


def post(path: str, body: str, key: str | None = None) -> requests.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return requests.post(os.environ["SHOP_SERVICE"] + path, data=body, headers=headers, timeout=30)


def state_of(db: sqlite3.Connection, order: str) -> str:
    return str(db.execute("select state from sagas where order_id = ?", (order,)).fetchone()[0])


def move(db: sqlite3.Connection, order: str, state: str) -> None:
    with db:
        db.execute("update sagas set state = ? where order_id = ?", (state, order))


@expect("sound", "Each part has a key, and the state says where to go on.", schema=SAGA, **KEYS)
def saga_with_keys(order: str) -> None:
    with closing(connect()) as db:
        if state_of(db, order) == "new":
            post("/reserve", order, f"reserve-{order}").raise_for_status()
            move(db, order, "reserved")
        if state_of(db, order) == "reserved":
            post("/charge", order, f"charge-{order}").raise_for_status()
            move(db, order, "charged")


@expect("doubled", "The second part of the saga has no key.", schema=SAGA, **KEYS)
def saga_without_second_key(order: str) -> None:
    with closing(connect()) as db:
        if state_of(db, order) == "new":
            post("/reserve", order, f"reserve-{order}").raise_for_status()
            move(db, order, "reserved")
        if state_of(db, order) == "reserved":
            post("/charge", order).raise_for_status()
            move(db, order, "charged")


@expect("lost", "The state moves before the part is done.", schema=SAGA, **KEYS)
def saga_moves_first(order: str) -> None:
    with closing(connect()) as db:
        if state_of(db, order) == "new":
            move(db, order, "charged")
            post("/charge", order, f"charge-{order}").raise_for_status()


@expect("doubled", "The lease is over while its owner is paused, and nobody checks it again.",
        schema=LEASES)  # fmt: skip
def lease_in_a_table(order: str) -> None:
    now = datetime.now(UTC)
    with closing(connect()) as db:
        with db:
            db.execute("delete from leases where until < ?", (now.isoformat(),))
            until = (now + timedelta(minutes=5)).isoformat()
            db.execute("insert or ignore into leases values (?, ?, ?)", (order, "me", until))
        if db.execute("select 1 from charges where order_id = ?", (order,)).fetchone() is None:
            with db:
                db.execute("insert into charges values (?)", (order,))


@contextmanager
def locked(path: str) -> Iterator[None]:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    try:
        yield
    finally:
        os.unlink(path)


@expect("stuck", "The file of the lock stays when its owner dies.", schema=PAYMENTS)
def lock_file(order: str) -> None:
    with locked("orders.lock"), closing(connect()) as db, db:
        db.execute("insert or ignore into payments values (?, 990)", (order,))


@expect("doubled", "The answer of the service is cached after the effect, in a file.",
        service={})  # fmt: skip
def cached_answer_in_file(order: str) -> None:
    cache = Path(f"{order}.json")
    if not cache.exists():
        answer = post("/charge", order)
        answer.raise_for_status()
        cache.write_text(answer.text)


@expect("sound", "The key is made once, and committed before the request is sent.",
        schema="create table keys (order_id text primary key, key text)", **KEYS)  # fmt: skip
def key_kept_before_request(order: str) -> None:
    with closing(connect()) as db:
        with db:
            db.execute("insert or ignore into keys values (?, ?)", (order, str(uuid4())))
        (key,) = db.execute("select key from keys where order_id = ?", (order,)).fetchone()
        post("/charge", "990", key).raise_for_status()


@expect("doubled", "The key is kept after the request, so that a repeat makes another one.",
        schema="create table keys (order_id text primary key, key text)", **KEYS)  # fmt: skip
def key_kept_after_request(order: str) -> None:
    with closing(connect()) as db:
        known = db.execute("select key from keys where order_id = ?", (order,)).fetchone()
        key = known[0] if known else str(uuid4())
        post("/charge", "990", key).raise_for_status()
        with db:
            db.execute("insert or ignore into keys values (?, ?)", (order, key))


BATCH = (
    "create table mails (id int primary key, state text); "
    "insert into mails values (1, 'new'), (2, 'new'), (3, 'new');"
)


@expect("lost", "One that fails is skipped, and the batch counts as done.", schema=BATCH, **KEYS)
def batch_skips_failures(order: str) -> None:
    with closing(connect()) as db:
        for (number,) in db.execute("select id from mails where state = 'new'").fetchall():
            try:
                post("/mails", str(number), f"mail-{number}").raise_for_status()
            except requests.RequestException:
                continue
            with db:
                db.execute("update mails set state = 'sent' where id = ?", (number,))


@expect("sound", "What failed is tried again, for the job ends in an error.", schema=BATCH, **KEYS)
def batch_raises_at_its_end(order: str) -> None:
    failed = 0
    with closing(connect()) as db:
        for (number,) in db.execute("select id from mails where state = 'new'").fetchall():
            try:
                post("/mails", str(number), f"mail-{number}").raise_for_status()
            except requests.RequestException:
                failed += 1
                continue
            with db:
                db.execute("update mails set state = 'sent' where id = ?", (number,))
    if failed:
        raise RuntimeError(f"{failed} mails were not sent")


@expect("lost", "A failure is written down as the end of the order.", schema=SAGA, **KEYS)
def failure_is_a_state(order: str) -> None:
    with closing(connect()) as db:
        if state_of(db, order) != "new":
            return
        try:
            post("/charge", order, order).raise_for_status()
            move(db, order, "charged")
        except requests.RequestException:
            move(db, order, "failed")


@expect("doubled", "The answer that did not come is asked for by a new request.", service={})
async def retry_on_timeout_async(order: str) -> None:
    async with httpx.AsyncClient(timeout=5) as client:
        for _ in range(3):
            with suppress(httpx.TransportError):
                answer = await client.post(os.environ["SHOP_SERVICE"], content=order)
                if answer.is_success:
                    return
    raise RuntimeError("the service is away")


@expect("sound", "A row is due once, and the time of its next run comes from its own time.",
        schema="create table plans (id text, runs int, due text); "
        "insert into plans values ('p', 0, '2026-01-01T00:00:00');")  # fmt: skip
def advance_plan(order: str) -> None:
    due = "2026-01-01T00:00:00"
    following = (datetime.fromisoformat(due) + timedelta(days=1)).isoformat()
    with closing(connect()) as db, db:
        db.execute(
            "update plans set runs = runs + 1, due = ? where id = 'p' and due = ?", (following, due)
        )


@expect("doubled", "The row is still due when the job comes again.",
        schema="create table plans (id text, runs int, due text); "
        "insert into plans values ('p', 0, '2026-01-01T00:00:00');")  # fmt: skip
def advance_plan_from_now(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("update plans set runs = runs + 1 where id = 'p' and due < ?",
                   (datetime.now(UTC).isoformat(),))  # fmt: skip


@expect("sound", "Each line is a JSON document of its own, and those that are there are not added.",
        compare=(lambda: sorted(set(Path("events").read_text().split())),),
        prepare=lambda: Path("events").touch())  # fmt: skip
def rewrite_events(order: str) -> None:
    events = Path("events").read_text().split()
    if (line := json.dumps({"order": order}, separators=(",", ":"))) not in events:
        Path("events.new").write_text("\n".join([*events, line]))
        os.replace("events.new", "events")


@expect("sound", "It waits for the service to be ready, and gives up with an error.", **KEYS)
def poll_until_done(order: str) -> None:
    post("/jobs", order, order).raise_for_status()
    for _ in range(5):
        found = requests.get(os.environ["SHOP_SERVICE"] + "/jobs", timeout=30).json()["done"]
        if found:
            return
        time.sleep(30)
    raise RuntimeError("it is not done")
