"""A charge: a row with a unique key comes first, and a conflict means that it was charged."""

import sqlite3

from places import Places, opened, post

from oncely import Context

TABLES = "create table charges (order_id text unique)"


def handler(_: Context, order: str, places: Places) -> str:
    with opened(places.database) as db:
        try:
            db.execute("insert into charges values (?)", (order,))
        except sqlite3.IntegrityError:
            return "charged before"
        post(places.service, f"charge {order}")
        return "charged"
