"""Handlers that call a service: the key of the request, and which library sends it."""

import asyncio
import hashlib
import hmac
import http.client
import json
import os
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import aiohttp
import httpx
import requests
import urllib3

from tests.prove.zoo.entries import expect

KEYS: dict[str, Any] = {"service": {"keys": "honoured"}}
PLAIN: dict[str, Any] = {"service": {}}
session = requests.Session()


def service(path: str = "") -> str:
    return os.environ["SHOP_SERVICE"] + path


def post(order: str, key: str) -> None:
    headers = {"Idempotency-Key": key}
    session.post(service(), json={"order": order}, headers=headers, timeout=30).raise_for_status()


@expect("doubled", "The key is a new one in each delivery.", **KEYS)
def key_by_uuid4(order: str) -> None:
    post(order, str(uuid4()))


@expect("sound", "The key is computed from the order.", **KEYS)
def key_by_uuid5(order: str) -> None:
    post(order, str(uuid5(NAMESPACE_URL, order)))


@expect("doubled", "The key has the day in it, and the job comes again two days later.", **KEYS)
def key_by_day(order: str) -> None:
    post(order, f"{order}:{datetime.now(UTC).date()}")


@expect("doubled", "The key has the second in it.", **KEYS)
def key_by_time(order: str) -> None:
    post(order, f"{order}:{int(time.time())}")


@expect("doubled", "hash() of a text is another in each interpreter.", **KEYS)
def key_by_hash(order: str) -> None:
    post(order, f"charge-{hash(order)}")


@expect("doubled", "The order of a set is another in each interpreter.", **KEYS)
def key_by_set(order: str) -> None:
    skus = {"tea", "mate", "coffee", "milk", "sugar", "honey", "salt", "rice", "oats", order}
    post(order, "-".join(skus))


@expect("sound", "The members of the set are sorted, and a digest is the same everywhere.", **KEYS)
def key_by_digest(order: str) -> None:
    skus = {"tea", "mate", "coffee", "milk", order}
    post(order, hashlib.sha256("-".join(sorted(skus)).encode()).hexdigest())


@expect("doubled", "The key has the id of the process.", **KEYS)
def key_by_process(order: str) -> None:
    post(order, f"{order}-{os.getpid()}")


@expect(
    "doubled",
    "The service forgets a key within two days, and nothing else tells that it was done.",
    service={"keys": "forgotten"},
)
def key_that_is_forgotten(order: str) -> None:
    post(order, order)


@expect("doubled", "The service does not look at keys.", **PLAIN)
def key_that_is_ignored(order: str) -> None:
    post(order, order)


@expect("sound", "http.client, with a key.", **KEYS)
def by_http_client(order: str) -> None:
    line = http.client.HTTPConnection(service().removeprefix("http://"), timeout=30)
    try:
        line.request("POST", "/charges", order.encode(), {"Idempotency-Key": order})
        answer = line.getresponse()
        answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"the bank answered {answer.status}")
    finally:
        line.close()


@expect("doubled", "http.client, and the status is looked at, but there is no key.", **PLAIN)
def by_http_client_without_key(order: str) -> None:
    line = http.client.HTTPConnection(service().removeprefix("http://"), timeout=30)
    line.request("POST", "/charges", order.encode())
    if line.getresponse().status != 200:
        raise RuntimeError("the bank did not take it")
    line.close()


@expect("sound", "urllib3 raises for no status, and the handler does.", **KEYS)
def by_urllib3(order: str) -> None:
    with urllib3.PoolManager() as pool:
        headers = {"Idempotency-Key": order}
        answer = pool.request("POST", service("/charges"), json={"id": order}, headers=headers)
        if answer.status != 200:
            raise RuntimeError(f"the bank answered {answer.status}")


@expect("lost", "urllib3 raises for no status, and neither does the handler.", **KEYS)
def by_urllib3_unchecked(order: str) -> None:
    with urllib3.PoolManager() as pool:
        headers = {"Idempotency-Key": order}
        pool.request("POST", service("/charges"), json={"id": order}, headers=headers)


@expect("sound", "PUT to the address of the order, which replaces what is there.", **PLAIN)
async def put_by_aiohttp(order: str) -> None:
    async with (
        aiohttp.ClientSession(raise_for_status=True) as client,
        client.put(service(f"/orders/{order}"), json={"state": "paid"}) as answer,
    ):
        await answer.read()


@expect("sound", "DELETE of what is gone already is the same.", **PLAIN)
def delete_by_httpx(order: str) -> None:
    httpx.delete(service(f"/carts/{order}"), timeout=30).raise_for_status()


async def charge(client: httpx.AsyncClient, line: str, key: str | None) -> None:
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = await client.post(service(f"/{line}"), content=line.encode(), headers=headers)
    answer.raise_for_status()


@expect("sound", "Three requests at once, each with its key.", **KEYS)
async def gather_with_keys(order: str) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        await asyncio.gather(*(charge(client, f"{order}-{n}", f"{order}-{n}") for n in range(3)))


@expect("doubled", "Two requests at once without a key.", **PLAIN)
async def task_group_without_keys(order: str) -> None:
    async with httpx.AsyncClient(timeout=30) as client, asyncio.TaskGroup() as group:
        for part in ("goods", "freight"):
            group.create_task(charge(client, part, None))


@expect("lost", "gather() with return_exceptions, and nobody looks at them.", **KEYS)
async def gather_swallows(order: str) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        calls = [charge(client, f"{order}-{n}", f"{order}-{n}") for n in range(2)]
        await asyncio.gather(*calls, return_exceptions=True)


@expect("sound", "Threads of a pool, each with a key, and their errors are raised.", **KEYS)
def thread_pool(order: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(post, ["goods", "freight"], ["goods-1", "freight-1"]))


@expect("lost", "The errors of the pool's threads are never asked for.", **KEYS)
def thread_pool_swallows(order: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        for part in ("goods", "freight"):
            pool.submit(post, part, f"{part}-1")


@expect(
    "sound", "The signature has the time, which is a header; the body and the key do not.", **KEYS
)
def signed_webhook(order: str) -> None:
    body = json.dumps({"event": "paid", "order": order}).encode()
    moment = str(int(time.time()))
    signature = hmac.new(b"secret", moment.encode() + b"." + body, "sha256").hexdigest()
    headers = {"Idempotency-Key": order, "X-Signature": f"t={moment},v1={signature}"}
    request = urllib.request.Request(service("/hooks"), body, headers)
    urllib.request.urlopen(request, timeout=30).close()


@expect(
    "not deterministic", "The body has the time to the microsecond: no two runs are alike.", **KEYS
)
def webhook_with_time(order: str) -> None:
    body = {"order": order, "sent_at": datetime.now(UTC).isoformat()}
    headers = {"Idempotency-Key": order}
    httpx.post(service("/hooks"), json=body, headers=headers, timeout=30).raise_for_status()


@expect(
    "sound",
    "Who runs two days later sends the day on which it runs, as one run then would.",
    **KEYS,
)
def report_of_the_day(order: str) -> None:
    day = date.today().isoformat()  # noqa: DTZ011
    headers = {"Idempotency-Key": order}
    httpx.post(service("/report"), json={"day": day}, headers=headers).raise_for_status()


@expect("refused", "The service is on another machine.")
def another_machine(order: str) -> None:
    httpx.post("http://192.0.2.1/charges", json={"order": order}, timeout=1)
