"""Handlers that send mail."""

import os
import smtplib
from contextlib import closing
from email.message import EmailMessage
from typing import Any

import aiosmtplib

from oncely import Context
from tests.prove.zoo.entries import expect
from tests.prove.zoo.sqlite import connect

SENT = "create table sent (order_id text primary key)"


def written(order: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "shop@example.org", "ann@example.org", order
    mail.set_content("Your order is on its way.")
    return mail


def place() -> tuple[str, int]:
    host, _, port = os.environ["SHOP_SMTP"].partition(":")
    return host, int(port)


def send(order: str) -> None:
    with smtplib.SMTP(*place(), timeout=30) as server:
        server.send_message(written(order))


@expect("doubled", "Nothing says that the mail was sent.", mail=True)
def plain_mail(order: str) -> None:
    send(order)


@expect("lost", "The row is committed before the mail is sent.", mail=True, schema=SENT)
async def mark_then_mail(order: str) -> None:
    with closing(connect()) as db, db:
        if not db.execute("insert or ignore into sent values (?)", (order,)).rowcount:
            return
    host, port = place()
    await aiosmtplib.send(written(order), hostname=host, port=port)


@expect("doubled", "The row is committed after the mail was sent.", mail=True, schema=SENT)
def mail_then_mark(order: str) -> None:
    with closing(connect()) as db:
        if not db.execute("select 1 from sent").fetchone():
            send(order)
            with db:
                db.execute("insert or ignore into sent values (?)", (order,))


@expect("lost", "A server that does not answer is taken for one that has the mail.", mail=True,
        schema=SENT)  # fmt: skip
def swallow_smtp_errors(order: str) -> None:
    with closing(connect()) as db, db:
        db.execute("insert or ignore into sent values (?)", (order,))
    try:
        send(order)
    except (OSError, smtplib.SMTPException):
        pass


@expect("held", "A fence holds the job where nobody knows whether the mail went out.", mail=True,
        job=True)  # fmt: skip
def fenced_mail(ctx: Context, order: str) -> Any:
    return ctx.fence("mail", send, order)
