"""The same trial, some weeks later: the customer is to be told."""

from places import Places, opened, post

from oncely import Context

TABLES = """
create table trials (id text, status text);
insert into trials values ('t1', 'active');
"""


def handler(_: Context, trial: str, places: Places) -> str:
    with opened(places.database) as db:
        changed = db.execute(
            "update trials set status = 'expired' where id = ? and status = 'active'", (trial,)
        ).rowcount
        if not changed:
            return "expired before"
        post(places.service, f"trial {trial} has ended")
        return "expired"
