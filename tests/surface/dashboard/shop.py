"""A store with something on every page, and a probe in every place where somebody else's text can
come from: shown as anything but text, it would run."""

import secrets
from dataclasses import dataclass

from oncely import Context, Nack, Oncely, Retry
from oncely.store.claim import claim

PROBE = (
    "\"'><img src=x class=hacked onerror=window.hacked=1><script>window.hacked=1</script>{{7*7}}"
)
HACKED = "window.hacked !== undefined || document.querySelector('.hacked') !== null"
PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Shop:
    completed: str
    failed: str
    in_doubt: str
    running: str
    scheduled: str
    cancelled: str
    pending: str


def _time_out(*_: object) -> None:
    raise TimeoutError(f"the bank did not answer {PROBE}")


def fill(app: Oncely) -> Shop:
    app.create_user("ada", PASSWORD, role="operator")
    app.create_user(PROBE, PASSWORD, role="reader")
    app.create_token(["read"], name=PROBE)
    app.set_group(PROBE, concurrency=3, rate=(10, 60))
    app.set_queue("payments", concurrency=8, rate=(100, 1.5), timeout=30, retry=Retry())

    @app.job("mail.send", queue="mail")
    def send(ctx: Context) -> str:
        ctx.step("render", lambda: PROBE)
        return PROBE

    @app.job("mail.fail", queue="mail")
    def fail(_: Context) -> None:
        raise Nack(PROBE, retryable=False)

    @app.job("order.charge", queue="payments")
    def charge(ctx: Context) -> None:
        ctx.fence("charge the card", _time_out, PROBE)

    app.schedule("digest", cron="0 9 * * *", timezone="Europe/Berlin", payload=PROBE)
    app.schedules()
    app.enqueue("order.charge", {"n": 2}, queue="payments", unique_key="order:2")
    for number in range(3):
        app.enqueue("mail.fail", {"n": number}, unique_key=f"dead:{number}")
    text = {"to": PROBE, PROBE: 1, "password": "hunter2-hunter2"}
    made = {
        "completed": app.enqueue("mail.send", text, idempotency_key=PROBE, tags=["vip"]),
        "failed": app.enqueue("mail.fail", text, group_key=PROBE, unique_key=PROBE),
        "in_doubt": app.enqueue("order.charge", text, idempotency_key="order:1:charge"),
    }
    app.enqueue("mail.send", text, idempotency_key=PROBE)
    app.drain()
    more = {
        "running": app.enqueue("page.scrape", text, queue="slow"),
        "scheduled": app.enqueue("mail.send", text, delay=3_600),
        "cancelled": app.enqueue("mail.send", text),
        "pending": app.enqueue("page.scrape", text, queue="other", unique_key=f"other {PROBE}"),
    }
    app.cancel(more["cancelled"].job_id)
    nonce = secrets.randbits(31)
    app._engine.run(
        lambda _: claim("slow", worker=PROBE, nonce=nonce, lease_seconds=3_600.0, limit=1),
        "transaction",
    )
    return Shop(**{name: receipt.job_id for name, receipt in (made | more).items()})
