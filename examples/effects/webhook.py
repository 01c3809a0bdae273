"""Events of a webhook, which come at least once. The event's own id is the key of the enqueue, also
after the job has ended; what it changes and the job that follows from it commit with its end."""

from pathlib import Path
from typing import TypedDict

from world import Mail, for_driver

from oncely import Context, Oncely, Receipt, key


class Event(TypedDict):
    id: str
    account: str
    cents: int


def register(app: Oncely, folder: Path) -> None:
    mail = Mail(folder, "mail")
    insert = for_driver(app, "insert into payments values (?, ?)")

    @app.job("payment.received")
    def received(ctx: Context, event: Event) -> None:
        with ctx.transaction() as tx:
            tx.execute(insert, (event["account"], event["cents"]))
            ctx.enqueue("payment.thank", event["account"], tx=tx)

    @app.job("payment.thank")
    def thank(ctx: Context, account: str) -> None:
        ctx.fence("mail", mail.send, account, "thanks", verify=mail.find)


def publish(app: Oncely) -> Receipt:
    event = Event(id="evt_1", account="ann", cents=4999)
    return app.enqueue("payment.received", event, idempotency_key=key("webhook", event["id"]))


TABLES = "create table payments (account text, cents integer)"
