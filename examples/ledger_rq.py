"""An RQ job that is enqueued twice, or run again after a crash, does its work once.

Run: python examples/ledger_rq.py shop.db redis://127.0.0.1:6379/0
The ledger is in the shop's own database, not in the Redis that RQ has: see docs/guide/ledger.md.
"""

import sys

from redis import Redis
from rq import Queue, SimpleWorker

from oncely import Ledger

ledger = Ledger(f"sqlite:///{sys.argv[1]}")


def mailed_before(user: str) -> None:
    """Ask the mail provider; None: it knows of no such mail."""


@ledger.idempotent(key=lambda user: f"welcome:{user}", verb="fence", verify=mailed_before)
def welcome(user: str) -> str:
    print("mailing", user)
    return f"mailed {user}"


if __name__ == "__main__":
    connection = Redis.from_url(sys.argv[2])
    queue = Queue("mails", connection=connection)
    jobs = [queue.enqueue("ledger_rq.welcome", "ann") for _ in range(2)]
    SimpleWorker([queue], connection=connection).work(burst=True, logging_level="ERROR")
    print([job.latest_result().return_value for job in jobs])
    ledger.close()
    connection.close()
