"""Receive pushed jobs, with Python's standard library alone: each order is charged once.

Run: ONCELY_PUSH_SECRET=whsec_... python examples/http/receive.py charges.db 9000
"""

import base64
import hashlib
import hmac
import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATH = sys.argv[1]
SECRET = base64.b64decode(os.environ["ONCELY_PUSH_SECRET"].removeprefix("whsec_"))
BODY_LIMIT = 2 * 1024 * 1024


def is_signed(headers, body: bytes) -> bool:
    """Whether the server sent it, and not long ago: an old one could be somebody's recording."""
    sent = headers.get("webhook-timestamp", "")
    if not sent.isdecimal() or abs(time.time() - int(sent)) > 300:
        return False
    signed = f"{headers.get('webhook-id')}.{sent}.".encode() + body
    wanted = b"v1," + base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256))
    given = headers.get("webhook-signature", "").encode().split()
    return any(hmac.compare_digest(wanted, each) for each in given)


def charge(job: dict) -> None:
    """Delivered twice, charged once: the row is the charge, and an order has one."""
    with closing(sqlite3.connect(PATH, timeout=30)) as db, db:
        order = job["payload"]
        db.execute(
            "insert into charge (order_id, cents, job_id) values (?, ?, ?) on conflict do nothing",
            (order["orderId"], order["amountCents"], job["id"]),
        )


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > BODY_LIMIT:
            return self.answer(413)
        body = self.rfile.read(int(length))
        if not is_signed(self.headers, body):
            return self.answer(401)
        try:
            charge(json.loads(body))
        except (KeyError, TypeError, sqlite3.IntegrityError):
            return self.answer(422)  # no repeat would change that: the job fails at once
        except sqlite3.OperationalError:
            return self.answer(503)  # comes back later, and no attempt is burned
        return self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close" if status == 413 else "keep-alive")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


with closing(sqlite3.connect(PATH)) as db, db:
    db.execute(
        "create table if not exists charge "
        "(order_id text primary key, cents integer not null, job_id text not null)"
    )
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Receiver)
print(f"http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
