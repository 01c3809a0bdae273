"""Mail that a handler sends: each is a boundary, and what arrived is compared."""

import math
import smtplib
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from email.message import EmailMessage
from email.utils import make_msgid
from pathlib import Path
from typing import Any

import aiosmtplib
import pytest

from oncely import Context, Oncely, Retry
from oncely.model.errors import InvalidInput
from oncely.prove import Mailbox, Report, Table, prove
from tests.prove.schedules import one_schedule


def written(text: str = "Welcome, Ann.") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@example.org", "ann@example.org", "Hello"
    mail["Message-ID"] = make_msgid()
    mail.set_content(text)
    mail.add_attachment(b"\x00\x01", maintype="application", subtype="pdf", filename="a.pdf")
    return mail


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as mailbox:
        yield mailbox


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Oncely]:
    with Oncely(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
            db.execute("create table sent (address text)")
        yield app


def proved(app: Oncely, handler: Callable[..., Any], *world: Any, **options: Any) -> Report:
    app.job("mail", retry=Retry(base=0))(handler)
    options = {"max_faults": 1, "budget_seconds": math.inf, **options}
    return prove(app, "mail", world=world, **options)


def by_smtplib(mailbox: Mailbox) -> None:
    with smtplib.SMTP(mailbox.host, mailbox.port) as server:
        server.login("ann", "secret")
        server.send_message(written())


async def by_aiosmtplib(mailbox: Mailbox) -> None:
    await aiosmtplib.send(
        written(), hostname="localhost", port=mailbox.port, username="ann", password="secret"
    )


def test_what_arrives_is_kept_without_what_differs_from_mail_to_mail(mailbox: Mailbox) -> None:
    by_smtplib(mailbox)
    [mail] = mailbox.mails
    assert (mail.sender, mail.recipients) == ("shop@example.org", ["ann@example.org"])
    assert (mail.subject, mail.body.splitlines()[0]) == ("Hello", "Welcome, Ann.")
    assert mail.body.splitlines()[1].startswith("[a.pdf, ")
    by_smtplib(mailbox)
    first, second = mailbox.snapshot()
    assert first == second


def test_a_mail_that_is_sent_again_is_doubled(mailbox: Mailbox, shop: Oncely) -> None:
    report = proved(shop, lambda ctx: by_smtplib(mailbox), mailbox)
    assert "mail to ann@example.org" in [each.name for each in report.boundaries]
    assert {each.verdict for each in report.violations} == {"doubled"}
    faults = {each.schedule.moves[0].fault for each in report.violations}
    assert {"crash", "lose", "timeout"} <= faults
    assert report.unobserved == []


def test_a_mail_of_aiosmtplib_is_seen(mailbox: Mailbox, shop: Oncely) -> None:
    def handler() -> Callable[[Context], Coroutine[Any, Any, None]]:
        async def send(ctx: Context) -> None:
            await by_aiosmtplib(mailbox)

        return send

    report = proved(shop, handler(), mailbox)
    assert {each.verdict for each in report.violations} == {"doubled"}
    assert {"lose", "timeout"} <= {each.schedule.moves[0].fault for each in report.violations}
    assert report.unobserved == []


def test_a_mail_in_a_fence_is_held(mailbox: Mailbox, shop: Oncely) -> None:
    report = proved(shop, lambda ctx: ctx.fence("mail", by_smtplib, mailbox), mailbox)
    assert (report.verdict, report.unobserved) == ("held", []), str(report)


def test_mail_to_another_server_is_not_sent(mailbox: Mailbox, shop: Oncely, tmp_path: Path) -> None:
    def send(ctx: Context) -> None:
        with smtplib.SMTP("192.0.2.1", 25, timeout=1) as server:
            server.send_message(written())

    with pytest.raises(InvalidInput, match=r"sends mail through 192\.0\.2\.1"):
        proved(shop, send, mailbox)


def test_mail_that_is_not_compared_is_named(mailbox: Mailbox, shop: Oncely, tmp_path: Path) -> None:
    def send(ctx: Context) -> None:
        by_smtplib(mailbox)
        with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as db:
            db.execute("insert into sent select 'ann' where not exists (select 1 from sent)")

    table = Table(f"sqlite:///{tmp_path / 'shop.db'}", "sent")
    report = proved(shop, send, table, schedule=one_schedule("crash@2"))
    assert report.verdict == "unobserved"
    assert f"mail through {mailbox.address}" in str(report)
