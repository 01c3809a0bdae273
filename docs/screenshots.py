"""Pictures of the dashboard, from a store that looks like a shop's: `python -m docs.screenshots`.

The store is made anew each time and its pages are drawn by the real server in a real browser, so
what the pictures show is what there is. They are written to `docs/images`.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
import time
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from playwright.sync_api import Browser

from oncely import Context, KeyWarning, Nack, NewJob, Oncely, Retry
from oncely.model.traffic import STEPS, buckets
from oncely.model.worker import About
from oncely.store import workers
from oncely.store.claim import claim
from oncely.surface.acting import acting
from tests.engine.steps import Backdoor
from tests.surface.dashboard import chromium
from tests.surface.http.server import in_thread

IMAGES: Final = Path(__file__).parent / "images"
LIMIT_BYTES: Final = 150_000
_PASSWORD: Final = "for this picture only"
_KINDS: Final = {
    "order.charge": ("payments", 40, 0.4),
    "mail.send": ("mail", 90, 0.12),
    "image.resize": ("media", 60, 1.6),
    "stock.sync": ("default", 25, 0.3),
}
"""Of each: its queue, how many there are in a minute, and how long it runs."""
_UNANSWERED: Final = (9_452, 9_453)
_CUSTOMERS: Final = ("ann", "bo", "carla", "dmitri", "eve", "farid", "greta", "hal")


def fill(app: Oncely) -> dict[str, str]:
    """The ids of the jobs whose pages are shown."""
    chance = random.Random(9482)

    @app.job("order.charge", queue="payments", retry=Retry(max_attempts=5, base=0, jitter=False))
    def charge(ctx: Context, order: dict[str, Any]) -> dict[str, Any]:
        ctx.step("reserve the goods", lambda: {"shelf": "B4"})
        if order.get("card") == "expired":
            raise Nack("the card was declined: expired", retryable=False)
        if ctx.attempt < order.get("attempts", 1):
            raise ConnectionError("connection reset by peer")
        ctx.fence("charge the card", _charge, order["order"], order["cents"])
        return {"charge": f"ch_{order['order']}"}

    @app.job("mail.send", queue="mail", retry=Retry(max_attempts=1))
    def send(ctx: Context, mail: dict[str, Any]) -> str:
        if mail["to"].startswith("hal"):
            raise RuntimeError(f"550 mailbox of {mail['to']} is unavailable")
        return ctx.step("hand over to the relay", lambda: f"queued as {ctx.job_id[:8]}")

    @app.job("image.resize", queue="media", retry=Retry(max_attempts=1))
    def resize(_: Context, image: dict[str, Any]) -> None:
        if image["width"] == 0:
            raise ValueError("an image must be wider than 0 pixels")

    @app.job("stock.sync", queue="default")
    def sync(_: Context) -> None: ...

    _operate(app)
    for number in range(9_400, 9_440):
        who = chance.choice(_CUSTOMERS)
        order: dict[str, Any] = {"order": number, "cents": chance.randrange(900, 90_000)}
        if number % 13 == 0:
            order["card"] = "expired"
        key = f"order:{number}:charge"
        for _ in range(2 if number % 4 == 0 else 1):
            app.enqueue("order.charge", order, idempotency_key=key, group_key=f"customer:{who}")
        app.enqueue("mail.send", {"to": f"{who}@example.com", "order": number})
        app.enqueue("image.resize", {"sku": number, "width": 0 if number % 8 == 0 else 640})
        if number % 10 == 0:
            app.drain()
            _let_pass(app, 600)
    story = app.enqueue(
        "order.charge",
        {"order": 9_451, "cents": 4_999, "card_number": "4242 4242 4242 4242", "attempts": 3},
        idempotency_key="order:9451:charge",
        group_key="customer:ann",
        tags=["vip"],
    )
    for _ in range(2):
        again = {"order": 9_451, "cents": 4_999, "card_number": "4242 4242 4242 4242"}
        app.enqueue("order.charge", {**again, "attempts": 3}, idempotency_key="order:9451:charge")
        app.drain()
    doubt = app.enqueue(
        "order.charge", {"order": 9_452, "cents": 2_950}, idempotency_key="order:9452:charge"
    )
    app.enqueue(
        "order.charge", {"order": 9_453, "cents": 12_900}, idempotency_key="order:9453:charge"
    )
    app.drain()
    _let_pass(app, 90)
    _wait(app, chance)
    _work(app)
    with closing(Backdoor(app)) as door:
        _traffic(door, chance)
    return {"story": story.job_id, "doubt": doubt.job_id}


# What a step is called with is on the pictures.
def _charge(order: int, cents: int) -> str:  # noqa: ARG001
    if order in _UNANSWERED:
        raise TimeoutError("the bank did not answer within 10 s")
    return f"ch_{order}"


def _operate(app: Oncely) -> None:
    """What operators have set up."""
    app.create_user("ada", _PASSWORD, role="operator")
    app.create_user("grace", _PASSWORD, role="reader")
    app.create_token(["publish"], name="web shop", queues=["payments", "mail"])
    app.create_token(["work"], name="image workers", queues=["media"])
    app.create_token(["read"], name="Prometheus")
    with acting("ada", note="the bank allows us 50 a second"):
        app.set_queue("payments", concurrency=32, rate=(50, 1), timeout=30)
    with acting("ada"):
        app.set_queue("reports", concurrency=1)
        app.set_group("customer:carla", concurrency=2)
    with acting("ada", note="the month is not closed yet"):
        app.pause("reports")
    app.schedule("digest", cron="0 9 * * MON-FRI", timezone="Europe/Berlin", queue="mail")
    app.schedule("stock.sync", cron="*/5 * * * *")
    app.schedules()


def _wait(app: Oncely, chance: random.Random) -> None:
    """Jobs that are not over."""
    app.enqueue_many(
        [NewJob("mail.send", {"to": f"{who}@example.com"}, queue="mail") for who in _CUSTOMERS]
    )
    app.enqueue_many([NewJob("report.build", {"month": n}, queue="reports") for n in range(1, 10)])
    app.enqueue_many([NewJob("image.resize", {"width": 640}, queue="media") for _ in range(24)])
    for _ in range(3):
        app.enqueue("mail.send", {"to": "bo@example.com"}, delay=chance.randrange(600, 7_200))
    _let_pass(app, 8)


def _work(app: Oncely) -> None:
    """Workers that are at it."""
    for host, pid, queues, running in (
        ("till-1", 4_021, ["payments", "mail"], 3),
        ("till-2", 3_977, ["payments", "mail"], 2),
        ("media-1", 812, ["media"], 8),
    ):
        name = f"{host}:{pid}:9f1c22ab"
        me = About(name, host, pid, queues, 16, "0.1.0")
        app._engine.run(lambda _, me=me, running=running: workers.seen(me, running), "write")
        queue = queues[-1]
        app._engine.run(
            lambda _, name=name, queue=queue, running=running: claim(
                queue, worker=name, nonce=7, lease_seconds=600.0, limit=running
            ),
            "transaction",
        )


def _traffic(door: Backdoor, chance: random.Random) -> None:
    """What workers have counted in the last hour and day, with an afternoon that is busy."""
    now = int(time.time())
    door.sql("begin")
    door.sql("delete from oncely.traffic")
    door.sql("delete from oncely.latency")
    for last in ("hour", "day"):
        seconds, steps = STEPS[last]
        for back in range(steps):
            step = (now // seconds - back) * seconds
            swell = 1 + 0.4 * math.sin(step / 5_000) + chance.uniform(-0.1, 0.1)
            swell *= 2.2 if last == "hour" and 20 <= back <= 27 else 1
            for kind, (queue, rate, ran) in _KINDS.items():
                n = max(1, round(rate * swell * seconds / 60))
                counted = {
                    ("enqueued", ""): n,
                    ("executions", "completed"): max(1, round(n * chance.uniform(0.9, 1.05))),
                    ("executions", "retried"): n // 40,
                    ("executions", "failed"): n // 90,
                    ("deduplicated", "enqueue"): n // 12,
                    ("deduplicated", "delivery"): n // 70,
                    ("deduplicated", "effect"): n // 55 if kind == "order.charge" else 0,
                }
                for (name, label), number in counted.items():
                    if number:
                        door.sql(
                            "insert into oncely.traffic values (:seconds, :step, :name, :kind,"
                            " :label, :n)",
                            seconds=seconds,
                            step=step,
                            name=name,
                            kind=kind,
                            label=label,
                            n=number,
                        )
                for measure, middle in (("waited", 0.02 * swell**3), ("ran", ran)):
                    taken = buckets(chance.lognormvariate(math.log(middle), 0.7) for _ in range(60))
                    door.sql(
                        "insert into oncely.latency values (:seconds, :step, :measure, :queue,"
                        " :kind, :buckets)",
                        seconds=seconds,
                        step=step,
                        measure=measure,
                        queue=queue,
                        kind=kind,
                        buckets=msgspec.json.encode(taken).decode(),
                    )
    door.sql("commit")


def _let_pass(app: Oncely, seconds: float) -> None:
    with closing(Backdoor(app)) as door:
        door.let_days_pass(seconds / 86_400)


def take(
    browser: Browser, url: str, ids: dict[str, str], theme: Literal["light", "dark"]
) -> list[Path]:
    pages = {
        "overview": ("/", 1_000),
        "doors": ("/doors", 860),
        "jobs": ("/jobs?queue=payments", 700),
        "job": (f"/jobs/{ids['story']}", 800),
        "doubt": ("/doubt", 900),
        "dead": ("/dead", 560),
        "queues": ("/queues", 520),
    }
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=theme)
    page = context.new_page()
    page.goto(f"{url}/dashboard/sign-in")
    page.fill("[name=name]", "ada")
    page.fill("[name=password]", _PASSWORD)
    page.click("button:has-text('Sign in') >> nth=0")
    made = []
    for name, (path, height) in pages.items():
        page.set_viewport_size({"width": 1280, "height": height})
        page.goto(f"{url}/dashboard{path}")
        page.wait_for_timeout(400)  # charts are drawn
        file = IMAGES / f"dashboard-{name}-{theme}.png"
        page.screenshot(path=file)
        made.append(file)
    context.close()
    return made


def main() -> int:
    warnings.simplefilter("ignore", KeyWarning)
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Oncely(f"sqlite:///{folder}/shop.db") as app:
        ids = fill(app)
        with in_thread(app) as url, chromium.running() as browser:
            made = take(browser, url, ids, "light") + take(browser, url, ids, "dark")
    large = [file for file in made if file.stat().st_size > LIMIT_BYTES]
    for file in made:
        print(f"{file.relative_to(IMAGES.parent.parent)}  {file.stat().st_size / 1000:.0f} kB")
    if large:
        print(f"larger than {LIMIT_BYTES / 1000:.0f} kB: {', '.join(file.name for file in large)}")
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
