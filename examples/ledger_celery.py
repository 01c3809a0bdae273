"""A Celery task that is redelivered does its work once.

Run: python examples/ledger_celery.py shop.db
Celery redelivers after a crash (acks_late), after a lost ack and after a visibility timeout. Here
the task is simply called twice with one event, as those would.
"""

import sys

from celery import Celery

from oncely import InProgress, Ledger

celery = Celery("shop", broker="memory://", backend="cache+memory://")
celery.conf.task_always_eager = True  # in this example; leave it out with a real broker
celery.conf.task_acks_late = True
ledger = Ledger(f"sqlite:///{sys.argv[1]}")  # PostgreSQL in production; works on in Celery's forks


@celery.task(autoretry_for=(InProgress,), retry_backoff=True)
@ledger.idempotent(key=lambda event: f"charge:{event['id']}")
def charge(event: dict) -> str:
    print("charging", event["id"])
    return f"receipt-{event['id']}"


event = {"id": "evt_1", "cents": 990}
print(charge.delay(event).get())
print(charge.delay(event).get())  # delivered again
ledger.close()
