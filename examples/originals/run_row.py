"""A sync: a row per job says whether it runs or is completed."""

from places import Places, opened, post

from oncely import Context

TABLES = "create table runs (job text primary key, status text)"


def handler(ctx: Context, tenant: str, places: Places) -> str:
    with opened(places.database) as db:
        db.execute("insert into runs values (?, 'running') on conflict do nothing", (ctx.job_id,))
        (status,) = db.execute("select status from runs where job = ?", (ctx.job_id,)).fetchone()
        if status == "completed":
            return "synced before"
        post(places.service, f"sync {tenant}")
        db.execute("update runs set status = 'completed' where job = ?", (ctx.job_id,))
        return "synced"
