"""Two Celery tasks that charge an order: one charges twice if a worker dies, the other does not."""

import os
import sqlite3
import urllib.request
from contextlib import closing

from celery import Celery

celery = Celery("shop", broker="memory://")
celery.conf.task_acks_late = True  # a task whose worker died is delivered again


def post_charge(order: str, headers: dict[str, str]) -> None:
    request = urllib.request.Request(os.environ["PAYMENTS_URL"], order.encode(), headers)
    with urllib.request.urlopen(request, timeout=30):
        pass


@celery.task
def charge(order: str, cents: int) -> None:
    """Broken: if the worker dies after the request, the next delivery charges again."""
    with closing(sqlite3.connect("shop.db")) as db:
        if db.execute("select 1 from charges where id = ?", (order,)).fetchone():
            return
        post_charge(order, {})
        db.execute("insert into charges values (?, ?)", (order, cents))
        db.commit()


@celery.task
def charge_once(order: str, cents: int) -> None:
    """Mended: every delivery sends the same key, and writes the same row."""
    post_charge(order, {"Idempotency-Key": f"charge:{order}"})
    with closing(sqlite3.connect("shop.db")) as db:
        db.execute("insert into charges values (?, ?) on conflict do nothing", (order, cents))
        db.commit()
