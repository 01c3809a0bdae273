"""A notification: a mark in Redis for a day, and if it is new, send."""

from contextlib import closing

from places import Places, post, redis_at

from oncely import Context

TABLES = ""


def handler(ctx: Context, who: str, places: Places) -> str:
    with closing(redis_at(places.redis)) as redis:
        if not redis.set(f"processed:{ctx.job_id}", "1", nx=True, ex=86_400):
            return "skipped"
        post(places.service, f"notify {who}")
        return "sent"
