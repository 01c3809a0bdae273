"""Handlers of Oncely jobs, with and without the verbs of their context."""

import os
from typing import Any

import requests

from oncely import Context
from tests.prove.zoo.entries import expect

NOTES = "create table notes (order_id text)"
STORE: dict[str, Any] = {"job": True, "postgres": NOTES, "tables": ("notes",)}


def charge(order: str, key: str | None = None) -> dict[str, Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = requests.post(os.environ["SHOP_SERVICE"], data=order, headers=headers, timeout=30)
    answer.raise_for_status()
    return dict(answer.json())


def inform(order: str) -> None:
    requests.post(os.environ["SHOP_BACKUP"], data=order, timeout=30).raise_for_status()


@expect("sound", "What is written in ctx.transaction() is settled with the job.", **STORE)
def in_transaction(ctx: Context, order: str) -> None:
    with ctx.transaction() as tx:
        tx.execute("insert into notes values (%s)", (order,))


@expect("doubled", "The connection is one of its own, and not that of the job.", **STORE)
def beside_transaction(ctx: Context, order: str) -> None:
    import psycopg

    with psycopg.connect(os.environ["SHOP_DATABASE"]) as db:
        db.execute("insert into notes values (%s)", (order,))


@expect("sound", "ctx.complete settles the job in the transaction of the handler.", **STORE)
def complete_in_own_transaction(ctx: Context, order: str) -> None:
    import psycopg

    with psycopg.connect(os.environ["SHOP_DATABASE"]) as db:
        db.execute("insert into notes values (%s)", (order,))
        ctx.complete({"noted": order}, tx=db)


@expect("doubled", "A step without a key is done again if its outcome was not recorded.", job=True,
        service={})  # fmt: skip
def step_without_key(ctx: Context, order: str) -> Any:
    return ctx.step("charge", charge, order)


@expect("sound", "A step with a key that the service honours for ever.", job=True,
        service={"keys": "honoured"})  # fmt: skip
def step_with_key(ctx: Context, order: str) -> Any:
    return ctx.step("charge", charge, order, ctx.key("charge"))


@expect("doubled", "The charge is a step with a key, and what follows is no step.", job=True,
        service={"keys": "honoured"}, backup={})  # fmt: skip
def call_after_step(ctx: Context, order: str) -> None:
    ctx.step("charge", charge, order, ctx.key("charge"))
    inform(order)


@expect("held", "Each call is behind a fence of its own.", job=True, service={}, backup={})
def two_fences(ctx: Context, order: str) -> None:
    ctx.fence("charge", charge, order)
    ctx.fence("inform", inform, order)


@expect("doubled", "The key has the number of the attempt.", job=True,
        service={"keys": "honoured"})  # fmt: skip
def key_by_attempt(ctx: Context, order: str) -> None:
    charge(order, f"{ctx.job_id}:{ctx.attempt}")


@expect("sound", "The key is the id of the job.", job=True, service={"keys": "honoured"})
def key_by_job(ctx: Context, order: str) -> None:
    charge(order, ctx.job_id)


@expect("lost", "Who is not the first delivery takes the work for done.", job=True,
        service={"keys": "honoured"})  # fmt: skip
def skip_after_first_attempt(ctx: Context, order: str) -> None:
    if ctx.attempt > 1:
        return
    charge(order, ctx.job_id)


@expect("sound", "A child of ctx.enqueue is enqueued once.", job=True)
def enqueue_child(ctx: Context, order: str) -> None:
    ctx.enqueue("mail.send", {"order": order})
