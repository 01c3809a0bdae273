"""Routes of FastAPI, Starlette and Flask, which a client calls again when it got no answer."""

import json
import os
import sqlite3
from contextlib import closing
from typing import Any

import requests
from fastapi import BackgroundTasks, FastAPI, Header, HTTPException
from flask import Flask, jsonify, request
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.prove.zoo.entries import expect
from tests.prove.zoo.sqlite import connect

fast = FastAPI()
flask = Flask("shop")
BODY: dict[str, Any] = {"args": (), "options": {"payload": {"order": "order-1", "cents": 990}}}
KEYED = {
    "args": (),
    "options": {**BODY["options"], "headers": {"Idempotency-Key": "k-1"}},
}
ORDERS = "create table orders (id text primary key, cents int);"
ANSWERS = ORDERS + "create table answers (key text primary key, body text);"


def send(order: str) -> None:
    requests.post(
        os.environ["SHOP_SERVICE"], data=order, headers={"Idempotency-Key": order}, timeout=30
    ).raise_for_status()


@fast.post("/append")
def append(body: dict[str, Any]) -> dict[str, Any]:
    with closing(connect()) as db, db:
        made = db.execute("insert into orders (cents) values (?)", (body["cents"],))
    return {"id": made.lastrowid}


expect("doubled", "Each request makes an order.", name="fastapi_append", request="POST /append",
       schema="create table orders (id integer primary key, cents int)", **BODY)(fast)  # fmt: skip


@fast.post("/stored")
def stored(body: dict[str, Any], key: str = Header(alias="Idempotency-Key")) -> Any:
    with closing(sqlite3.connect("shop.db", timeout=30, isolation_level=None)) as db:
        db.execute("begin immediate")
        known = db.execute("select body from answers where key = ?", (key,)).fetchone()
        if known:
            return json.loads(known[0])
        db.execute("insert into orders values (?, ?)", (f"id-of-{key}", body["cents"]))
        answer = {"id": f"id-of-{key}"}
        db.execute("insert into answers values (?, ?)", (key, json.dumps(answer)))
        db.execute("commit")
        return answer


expect("sound", "The answer is kept under the client's key, with the order.", schema=ANSWERS,
       name="fastapi_stored_answer", request="POST /stored", **KEYED)(fast)  # fmt: skip


@fast.post("/stored-late")
def stored_late(body: dict[str, Any], key: str = Header(alias="Idempotency-Key")) -> Any:
    with closing(connect()) as db:
        known = db.execute("select body from answers where key = ?", (key,)).fetchone()
        if known:
            return json.loads(known[0])
        with db:
            made = db.execute("insert into orders (cents) values (?)", (body["cents"],))
        answer = {"id": made.lastrowid}
        with db:
            db.execute("insert or ignore into answers values (?, ?)", (key, json.dumps(answer)))
        return answer


expect("doubled", "The answer is kept in a second transaction.", name="fastapi_answer_stored_late",
       request="POST /stored-late", schema=ANSWERS, **KEYED)(fast)  # fmt: skip


@fast.put("/orders/{order}")
async def put(order: str, body: dict[str, Any]) -> Response:
    with closing(connect()) as db, db:
        db.execute("insert or replace into orders values (?, ?)", (order, body["cents"]))
    return Response(status_code=204)


expect("sound", "PUT replaces the order.", name="fastapi_put", request="PUT /orders/order-1",
       schema=ORDERS, **BODY)(fast)  # fmt: skip


@fast.post("/conflict")
def conflict(body: dict[str, Any], tasks: BackgroundTasks) -> dict[str, str]:
    try:
        with closing(connect()) as db, db:
            db.execute("insert into orders values (?, ?)", (body["order"], body["cents"]))
    except sqlite3.IntegrityError:
        raise HTTPException(409, "it is there already") from None
    tasks.add_task(send, body["order"])
    return {"state": "taken"}


expect("lost", "A repeat is answered 409, and the request of the background is never sent.",
       name="fastapi_background_after_409", request="POST /conflict", schema=ORDERS,
       service={"keys": "honoured"}, **BODY)(fast)  # fmt: skip


async def accept(received: Request) -> JSONResponse:
    body = await received.json()
    with closing(connect()) as db, db:
        db.execute("insert or ignore into orders values (?, ?)", (body["order"], body["cents"]))
    task = BackgroundTask(send, body["order"])
    return JSONResponse({"state": "taken"}, 202, background=task)


expect("lost", "The client has its 202 before the background sends, so it never comes again.",
       name="starlette_background", request="POST /orders", schema=ORDERS,
       service={"keys": "honoured"}, **BODY)(
    Starlette(routes=[Route("/orders", accept, methods=["POST"])])
)  # fmt: skip


async def accept_and_send(received: Request) -> JSONResponse:
    import anyio.to_thread

    body = await received.json()
    await anyio.to_thread.run_sync(send, body["order"])
    with closing(connect()) as db, db:
        db.execute("insert or ignore into orders values (?, ?)", (body["order"], body["cents"]))
    return JSONResponse({"state": "done"})


expect("sound", "The request with a key is sent before the answer.", name="starlette_send_first",
       request="POST /orders", schema=ORDERS, service={"keys": "honoured"}, **BODY)(
    Starlette(routes=[Route("/orders", accept_and_send, methods=["POST"])])
)  # fmt: skip


@flask.post("/debit")
def debit() -> Any:
    with closing(connect()) as db, db:
        db.execute("update accounts set cents = cents - ?", (request.get_json()["cents"],))
    return jsonify(ok=True)


expect("doubled", "The account is debited by each request.", name="flask_debit",
       request="POST /debit", schema="create table accounts (cents int); "
       "insert into accounts values (9900);", **BODY)(flask)  # fmt: skip


@flask.post("/confirm")
def confirm() -> Any:
    with closing(connect()) as db, db:
        changed = db.execute("update orders set cents = 990 where id = 'order-1' and cents = 0")
        if changed.rowcount == 0:
            return jsonify(error="it is confirmed already"), 409
    return jsonify(ok=True)


expect("sound", "A repeat is refused with 409, and the order was confirmed once.",
       name="flask_conflict", request="POST /confirm",
       schema=ORDERS + "insert into orders values ('order-1', 0);", **BODY)(flask)  # fmt: skip


@flask.post("/relay")
def relay() -> Any:
    answer = requests.post(os.environ["SHOP_SERVICE"], data="x", timeout=30)
    return jsonify(ok=answer.ok), (200 if answer.ok else 502)


expect("doubled", "The client repeats what got no answer, and the service knows no key.",
       name="flask_relay", request="POST /relay", service={}, **BODY)(flask)  # fmt: skip
