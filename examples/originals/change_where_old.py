"""A trial that expires: changed only where it still has the old state."""

from places import Places, opened

from oncely import Context

TABLES = """
create table trials (id text, status text);
insert into trials values ('t1', 'active');
"""


def handler(_: Context, trial: str, places: Places) -> str:
    with opened(places.database) as db:
        (status,) = db.execute("select status from trials where id = ?", (trial,)).fetchone()
        if status == "expired":
            return "expired before"
        changed = db.execute(
            "update trials set status = 'expired' where id = ? and status = 'active'", (trial,)
        ).rowcount
        return "expired" if changed else "somebody else was faster"
