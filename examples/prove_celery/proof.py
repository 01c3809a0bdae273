"""What the proof compares: a payment service that honours keys, and the table of charges."""

import os
import sqlite3
from contextlib import closing

from oncely.prove import Downstream, Table

payments = Downstream(keys="honoured")
os.environ["PAYMENTS_URL"] = payments.url


def world() -> list[Downstream | Table]:
    with closing(sqlite3.connect("shop.db")) as db:
        db.execute("create table if not exists charges (id text primary key, cents int)")
    return [payments, Table("sqlite:///shop.db", "charges")]


def payloads() -> dict[str, dict[str, list[object]]]:
    """The arguments of each task, for --all."""
    return {name: {"args": ["order-1", 990]} for name in ("tasks.charge", "tasks.charge_once")}
