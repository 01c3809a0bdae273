"""Handlers that call a service: what they make of its answers, of silence and of doubt."""

import json
import os
import time
import urllib.error
import urllib.request
from contextlib import closing
from typing import Any

import httpx
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from tests.prove.zoo.entries import expect
from tests.prove.zoo.sqlite import connect

KEYS: dict[str, Any] = {"service": {"keys": "honoured"}}
PLAIN: dict[str, Any] = {"service": {}}
SENT = "create table sent (order_id text primary key)"


def service(path: str = "") -> str:
    return os.environ["SHOP_SERVICE"] + path


def post(order: str, *, key: bool = True, timeout: float = 30) -> requests.Response:
    headers = {"Idempotency-Key": order} if key else {}
    return requests.post(service(), data=order, headers=headers, timeout=timeout)


@expect("lost", "The status is not looked at: a 503 is taken for success.", **KEYS)
def status_unchecked(order: str) -> None:
    post(order)


@expect("lost", "A 429 is taken for an answer.", **KEYS)
def give_up_when_throttled(order: str) -> None:
    answer = post(order)
    if answer.status_code == 429:
        return
    answer.raise_for_status()


@expect("sound", "It waits for as long as the service says, and asks again with its key.", **KEYS)
def wait_when_throttled(order: str) -> None:
    for _ in range(5):
        answer = post(order)
        if answer.status_code not in (429, 503):
            break
        time.sleep(int(answer.headers.get("Retry-After", 1)))
    answer.raise_for_status()


@expect("doubled", "After a time-out it asks again, without a key.", **PLAIN)
def retry_without_key(order: str) -> None:
    for attempt in range(3):
        try:
            post(order, key=False).raise_for_status()
            return
        except requests.RequestException:
            if attempt == 2:
                raise
            time.sleep(2**attempt)


@expect("sound", "After a time-out it asks again, with the same key.", **KEYS)
def retry_with_key(order: str) -> None:
    for attempt in range(3):
        try:
            post(order).raise_for_status()
            return
        except requests.RequestException:
            if attempt == 2:
                raise
            time.sleep(2**attempt)


@expect("lost", "After two refusals it gives up, and says nothing.", **KEYS)
def retry_twice_and_give_up(order: str) -> None:
    for _ in range(2):
        if post(order).ok:
            return


@expect(
    "lost", "A time-out is taken for success, also one of a request that never arrived.", **KEYS
)
def timeout_is_success(order: str) -> None:
    try:
        post(order).raise_for_status()
    except requests.Timeout:
        pass


@expect("lost", "A connection that broke is taken for success: nothing may have arrived.", **KEYS)
def lost_connection_is_success(order: str) -> None:
    try:
        httpx.post(
            service(), content=order, headers={"Idempotency-Key": order}, timeout=30
        ).raise_for_status()
    except httpx.TransportError:
        pass


@expect("lost", "All errors of the request are swallowed.", **KEYS)
def swallow_request_errors(order: str) -> None:
    try:
        post(order).raise_for_status()
    except requests.RequestException as error:
        print("the charge failed", error)


@expect("sound", "The adapter repeats the request, with the key that it has.", **KEYS)
def adapter_retries_with_key(order: str) -> None:
    retries = Retry(total=3, status_forcelist=[503], allowed_methods=None, backoff_factor=0)
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retries))
        headers = {"Idempotency-Key": order}
        session.post(service(), data=order, headers=headers, timeout=30).raise_for_status()


@expect("doubled", "The adapter repeats the request, and there is no key.", **PLAIN)
def adapter_retries_without_key(order: str) -> None:
    retries = Retry(total=3, status_forcelist=[503], allowed_methods=None, backoff_factor=0)
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retries))
        session.post(service(), data=order, timeout=30).raise_for_status()


def was_sent(order: str) -> bool:
    with urllib.request.urlopen(service(), timeout=30) as answer:
        return any(each["body"] == order for each in json.load(answer)["done"])


@expect("doubled", "A paused worker has looked before its successor sent.", **PLAIN)
def look_then_post(order: str) -> None:
    if not was_sent(order):
        post(order, key=False).raise_for_status()


@expect("sound", "The key makes it one, and looking before it saves a request.", **KEYS)
def look_then_post_with_key(order: str) -> None:
    if not was_sent(order):
        post(order).raise_for_status()


@expect("doubled", "The row is written after the request.", schema=SENT, **PLAIN)
def row_after_request(order: str) -> None:
    with closing(connect()) as db:
        if db.execute("select 1 from sent where order_id = ?", (order,)).fetchone():
            return
        post(order, key=False).raise_for_status()
        with db:
            db.execute("insert or ignore into sent values (?)", (order,))


@expect("doubled", "The request is inside of a transaction, which a crash undoes.", schema=SENT,
        **PLAIN)  # fmt: skip
def request_inside_transaction(order: str) -> None:
    with closing(connect()) as db, db:
        if db.execute("insert or ignore into sent values (?)", (order,)).rowcount:
            post(order, key=False).raise_for_status()


@expect("sound", "The request has a key, and the row follows it.", schema=SENT, **KEYS)
def key_and_row(order: str) -> None:
    with closing(connect()) as db:
        post(order).raise_for_status()
        with db:
            db.execute("insert or ignore into sent values (?)", (order,))


@expect("sound", "A 409 for a request that is in progress raises, and the job is retried.",
        schema=SENT, service={"keys": "honoured", "answers_409": True})  # fmt: skip
def conflict_is_retried(order: str) -> None:
    with closing(connect()) as db:
        if db.execute("select 1 from sent where order_id = ?", (order,)).fetchone():
            return
        post(order).raise_for_status()
        with db:
            db.execute("insert or ignore into sent values (?)", (order,))


@expect("doubled", "The first service did it, though it did not answer; then so does the second.",
        backup={"keys": "honoured"}, **KEYS)  # fmt: skip
def fall_back_to_another(order: str) -> None:
    try:
        post(order, timeout=5).raise_for_status()
    except requests.RequestException:
        headers = {"Idempotency-Key": order}
        requests.post(
            os.environ["SHOP_BACKUP"], data=order, headers=headers, timeout=30
        ).raise_for_status()


@expect("doubled", "The charge has a key, and the message after it has none.",
        backup={}, **KEYS)  # fmt: skip
def second_call_without_key(order: str) -> None:
    post(order).raise_for_status()
    requests.post(os.environ["SHOP_BACKUP"], data=order, timeout=30).raise_for_status()


@expect("doubled", "The refund in the except branch is made though the charge may be retried.",
        backup={}, **KEYS)  # fmt: skip
def compensate_at_once(order: str) -> None:
    try:
        post(order).raise_for_status()
    except requests.RequestException:
        requests.post(os.environ["SHOP_BACKUP"], data="refund", timeout=30).raise_for_status()
        raise


OUTBOX = (
    "create table outbox (id integer primary key, body text, sent int default 0);"
    "insert into outbox (body) values ('a'), ('b');"
)


@expect("doubled", "A row is marked after it was sent, and the request has no key.", schema=OUTBOX,
        **PLAIN)  # fmt: skip
def relay_outbox(order: str) -> None:
    with closing(connect()) as db:
        for number, body in db.execute("select id, body from outbox where sent = 0").fetchall():
            post(body, key=False).raise_for_status()
            with db:
                db.execute("update outbox set sent = 1 where id = ?", (number,))


@expect("sound", "Each row is sent with its own key, and marked after that.", schema=OUTBOX, **KEYS)
def relay_outbox_with_keys(order: str) -> None:
    with closing(connect()) as db:
        for number, body in db.execute("select id, body from outbox where sent = 0").fetchall():
            post(body).raise_for_status()
            with db:
                db.execute("update outbox set sent = 1 where id = ?", (number,))


@expect("lost", "Rows are marked, and then sent.", schema=OUTBOX, **KEYS)
def mark_then_relay(order: str) -> None:
    with closing(connect()) as db:
        rows = db.execute("select id, body from outbox where sent = 0").fetchall()
        with db:
            db.execute("update outbox set sent = 1")
        for _, body in rows:
            post(body).raise_for_status()


@expect("stuck", "A refusal is remembered under the key, and each repeat gets it again.",
        service={"keys": "honoured", "replays_errors": True})  # fmt: skip
def key_of_a_refusal(order: str) -> None:
    request = urllib.request.Request(service(), order.encode(), {"Idempotency-Key": order})
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        error.close()
        raise
