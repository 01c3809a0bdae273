"""A payment in your own database: the row of the ledger and the effect in one transaction."""

from places import Places, opened

from oncely import Context

TABLES = """
create table processed (job text primary key);
create table payments (account text);
"""


def handler(ctx: Context, account: str, places: Places) -> str:
    with opened(places.database) as db:
        db.execute("begin immediate")
        fresh = db.execute(
            "insert into processed values (?) on conflict do nothing", (ctx.job_id,)
        ).rowcount
        if fresh:
            db.execute("insert into payments values (?)", (account,))
        db.execute("commit")
        return "paid" if fresh else "paid before"
