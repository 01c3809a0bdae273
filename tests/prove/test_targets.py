"""Targets that are no jobs of ours: functions, tasks of other queues, requests to web apps."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from fastapi import BackgroundTasks, FastAPI, Header, HTTPException
from flask import Flask, request
from rq.decorators import job as rq_job

from oncely import InvalidInput
from oncely.prove import Report, Table, prove
from tests.prove.schedules import one_schedule


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table orders (id text, cents int)")
        db.execute("create table paid (id text primary key, cents int)")
    return path


def add(file: Path, table: str, order: str, cents: int) -> None:
    """Into `orders` a repeat adds a second row, into `paid` it does not."""
    with closing(sqlite3.connect(file)) as db:
        db.execute(f"insert or ignore into {table} values (?, ?)", (order, cents))
        db.commit()


def proved(target: Any, kind: str | None = None, *, file: Path, table: str, **given: Any) -> Report:
    world = [Table(f"sqlite:///{file}", table)]
    return prove(target, kind, world=world, max_faults=1, budget_seconds=float("inf"), **given)


@pytest.mark.parametrize(("table", "verdict"), [("orders", "doubled"), ("paid", "sound")])
def test_a_function_with_arguments(file: Path, table: str, verdict: str) -> None:
    def charge(order: str, *, cents: int) -> None:
        add(file, table, order, cents)

    report = proved(
        charge, file=file, table=table, args=["a"], kwargs={"cents": 5},
        schedule=one_schedule("crash@4"),
    )  # fmt: skip
    assert (report.kind, report.verdict) == ("charge", verdict)
    assert '{"cents":5,"id":"a"}' in report.wanted[f"table {table}"]


def test_a_coroutine_function(file: Path) -> None:
    async def charge(order: str, cents: int) -> None:
        await asyncio.sleep(0)
        add(file, "orders", order, cents)

    report = proved(charge, file=file, table="orders", args=("a", 5), schedule="crash@4")
    assert report.verdict == "doubled"


def test_an_actor_of_dramatiq(file: Path) -> None:
    @dramatiq.actor(broker=StubBroker(), actor_name="shop.charge")
    def charge(order: str, cents: int) -> None:
        add(file, "orders", order, cents)

    report = proved(charge, file=file, table="orders", args=("a", 5), schedule="crash@4")
    assert (report.kind, report.verdict) == ("shop.charge", "doubled")


def test_a_job_of_rq(file: Path) -> None:
    @rq_job("default", connection=None)  # type: ignore[arg-type, untyped-decorator]
    def charge(order: str, cents: int) -> None:
        add(file, "orders", order, cents)

    report = proved(charge, file=file, table="orders", args=("a", 5), schedule="crash@4")
    assert (report.kind, report.verdict) == ("charge", "doubled")


def fastapi_app(file: Path) -> FastAPI:
    app = FastAPI()

    @app.post("/orders/{order}")
    def take(order: str, body: dict[str, int], key: str = Header(alias="Idempotency-Key")) -> None:
        add(file, "orders", order, body["cents"])

    @app.put("/paid/{order}")
    async def pay(order: str, body: dict[str, int]) -> None:
        with closing(sqlite3.connect(file)) as db:
            if db.execute("select 1 from paid where id = ?", (order,)).fetchone():
                raise HTTPException(409, "it is paid")
        add(file, "paid", order, body["cents"])

    return app


def test_a_route_of_fastapi_that_doubles(file: Path) -> None:
    report = proved(
        fastapi_app(file), "POST /orders/a", payload={"cents": 5},
        headers={"Idempotency-Key": "1"}, file=file, table="orders",
    )  # fmt: skip
    assert (report.kind, report.verdict) == ("POST /orders/a", "doubled")
    assert report.wanted["table orders"] == {'{"cents":5,"id":"a"}': 1}
    where = report.violations[0].where
    assert where is not None
    assert where.startswith(f"{__file__}:")


def test_a_client_takes_a_refusal_of_its_repeat_for_an_answer(file: Path) -> None:
    report = proved(fastapi_app(file), "PUT /paid/a", payload={"cents": 5}, file=file, table="paid")
    assert report.verdict == "sound"


def test_a_client_that_has_its_answer_does_not_come_again(file: Path) -> None:
    """What is to be done after the answer is lost if the server ends there."""
    app = FastAPI()

    @app.put("/paid/{order}")
    async def pay(order: str, tasks: BackgroundTasks) -> None:
        tasks.add_task(add, file, "paid", order, 0)

    report = proved(app, "PUT /paid/a", file=file, table="paid", schedule="crash@2")
    assert [each.name for each in report.boundaries][:3] == ["claim", "settle", "BEGIN"]
    assert report.verdict == "lost", str(report)


def test_the_lifespan_of_an_app_is_run(file: Path) -> None:
    async def web(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            scope["state"]["order"] = "begun"
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        add(file, "orders", scope["state"]["order"], 0)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    report = proved(web, "GET /", file=file, table="orders", schedule="crash@4")
    assert report.verdict == "doubled"
    assert report.wanted["table orders"] == {'{"cents":0,"id":"begun"}': 1}


def test_a_route_of_flask(file: Path) -> None:
    app = Flask("shop")

    @app.post("/orders")
    def take() -> str:
        add(file, "orders", request.args["order"], request.get_json()["cents"])
        return "taken"

    payload = {"cents": 5}
    report = proved(
        app, "POST /orders?order=a", payload=payload, file=file, table="orders", schedule="crash@4"
    )
    assert report.verdict == "doubled"
    with pytest.raises(InvalidInput, match="POST /nowhere was answered 404"):
        proved(app, "POST /nowhere", payload=payload, file=file, table="orders")
    with pytest.raises(InvalidInput, match="POST /orders was answered 400"):
        proved(app, "POST /orders", payload=payload, file=file, table="orders")


def charge(order: str) -> None: ...


@pytest.mark.parametrize(
    ("target", "kind", "given", "told"),
    [
        (charge, None, {"payload": 1, "args": [1]}, "expected one of the two"),
        (charge, None, {"args": "abc"}, "expected a list"),
        (charge, None, {"headers": {"a": "b"}}, "charge is a function, and no web app"),
        (charge, "POST /orders", {}, "charge is a function, and no web app"),
        (charge, {"order": 1}, {}, "the payload is given by name"),
        (Flask("shop"), None, {}, "the request is None; expected METHOD /path"),
        (Flask("shop"), "orders", {}, "the request is 'orders'"),
        (Flask("shop"), "POST /orders", {"args": [1]}, "not args or kwargs"),
        (7, None, {}, "prove got 7; expected an Oncely app"),
    ],
)
def test_bad_input(target: Any, kind: Any, given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        prove(target, kind, **given)
