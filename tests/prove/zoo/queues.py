"""Tasks of Celery, RQ, Dramatiq and django-tasks's neighbours, as their users write them."""

import os
from contextlib import closing
from typing import Any

import dramatiq
import requests
from celery import Celery
from dramatiq.brokers.stub import StubBroker
from rq.decorators import job as rq_job

from tests.prove.zoo.entries import expect
from tests.prove.zoo.sqlite import PAYMENTS, STOCK, connect

celery = Celery("shop", broker="memory://")
broker = StubBroker()
KEYS: dict[str, Any] = {"service": {"keys": "honoured"}}
COUNTS = "create table counts (n int); insert into counts values (0);"


def post(order: str, key: str) -> None:
    requests.post(
        os.environ["SHOP_SERVICE"], data=order, headers={"Idempotency-Key": key}, timeout=30
    ).raise_for_status()


def count() -> None:
    with closing(connect()) as db, db:
        db.execute("update counts set n = n + 1")


@expect("sound", "The id of the task is the same in each redelivery.", name="celery_id", **KEYS)
@celery.task(bind=True, acks_late=True)  # type: ignore[untyped-decorator]
def celery_id(self: Any, order: str) -> None:
    post(order, self.request.id)


@expect("doubled", "The key has the number of retries, and a retry sends another one.",
        name="celery_retries_in_key", **KEYS)  # fmt: skip
@celery.task(bind=True, autoretry_for=(requests.RequestException,), max_retries=5)  # type: ignore[untyped-decorator]
def celery_retries_in_key(self: Any, order: str) -> None:
    post(order, f"{order}:{self.request.retries}")


@expect("lost", "A delivery that is marked as a repeat is taken for one that was done.",
        name="celery_skips_redelivered", **KEYS)  # fmt: skip
@celery.task(bind=True, acks_late=True)  # type: ignore[untyped-decorator]
def celery_skips_redelivered(self: Any, order: str) -> None:
    if self.request.delivery_info["redelivered"]:
        return
    post(order, order)


@expect("sound", "A retry has the same key.", name="celery_retry", **KEYS)
@celery.task(bind=True, max_retries=5)  # type: ignore[untyped-decorator]
def celery_retry(self: Any, order: str) -> None:
    try:
        post(order, f"charge:{order}")
    except requests.RequestException as error:
        raise self.retry(exc=error, countdown=10) from error


@expect("lost", "`ignore_result` has nothing to do with it: all errors are swallowed.",
        name="celery_swallows", schema=COUNTS)  # fmt: skip
@celery.task(ignore_result=True)  # type: ignore[untyped-decorator]
def celery_swallows(order: str) -> None:
    try:
        count()
    except Exception:
        celery.log.get_default_logger().info("it failed")


@expect("doubled", "The count is raised by each delivery.", name="celery_counts", schema=COUNTS)
@celery.task  # type: ignore[untyped-decorator]
def celery_counts(order: str) -> None:
    count()


@expect("doubled", "The stock goes down with each delivery.", name="rq_stock", schema=STOCK)
@rq_job("default", connection=None)  # type: ignore[arg-type, untyped-decorator]
def rq_stock(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("update stock set n = n - 1")


@expect("sound", "The payment has a key.", name="rq_payment", schema=PAYMENTS)
@rq_job("default", connection=None)  # type: ignore[arg-type, untyped-decorator]
def rq_payment(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("insert or ignore into payments values (?, 990)", (order,))


@expect("doubled", "The request has no key.", name="dramatiq_post", service={})
@dramatiq.actor(broker=broker, max_retries=3)
def dramatiq_post(order: str) -> None:
    requests.post(os.environ["SHOP_SERVICE"], data=order, timeout=30).raise_for_status()


@expect("sound", "The state changes once.", name="dramatiq_state",
        schema="create table orders (id text, state text); insert into orders values "
        "('order-1', 'new');")  # fmt: skip
@dramatiq.actor(broker=broker)
def dramatiq_state(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("update orders set state = 'paid' where id = ?", (order,))
