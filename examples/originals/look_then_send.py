"""A welcome mail: look whether it was sent, send it, write that down."""

from places import Places, opened, post

from oncely import Context

TABLES = "create table mails (address text, template text)"


def handler(_: Context, address: str, places: Places) -> str:
    with opened(places.database) as db:
        seen = db.execute(
            "select 1 from mails where address = ? and template = 'welcome'", (address,)
        ).fetchone()
        if seen:
            return "skipped"
        post(places.service, f"welcome {address}")
        db.execute("insert into mails values (?, 'welcome')", (address,))
        return "sent"
