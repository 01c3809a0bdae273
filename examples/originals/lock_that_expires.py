"""A report: under a lock that expires, make and upload it, then write a row."""

from contextlib import closing

from places import Places, opened, post, redis_at

from oncely import Context

TABLES = "create table reports (id text, job text, url text)"


def handler(ctx: Context, report: str, places: Places) -> str:
    with closing(redis_at(places.redis)) as redis, opened(places.database) as db:
        if not redis.set(f"report:{ctx.job_id}", "locked", nx=True, ex=300):
            return "skipped"
        try:
            if db.execute("select 1 from reports where job = ?", (ctx.job_id,)).fetchone():
                return "skipped"
            post(places.service, f"report {report}")
            row = (report, ctx.job_id, f"storage://{report}")
            db.execute("insert into reports values (?, ?, ?)", row)
            return "made"
        finally:
            redis.delete(f"report:{ctx.job_id}")
