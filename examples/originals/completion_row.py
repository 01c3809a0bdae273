"""Any effect: commit a row that says completed, and if it is new, do it."""

from places import Places, opened, post

from oncely import Context

TABLES = "create table completions (job text primary key)"


def handler(ctx: Context, what: str, places: Places) -> str:
    with opened(places.database) as db:
        db.execute("begin immediate")
        fresh = db.execute(
            "insert into completions values (?) on conflict do nothing returning job",
            (ctx.job_id,),
        ).fetchone()
        db.execute("commit")
        if not fresh:
            return "completed before"
        post(places.service, what)
        return "completed"
